"""An origin that answers anything, and a client that asks for it."""

import asyncio
import re
import threading
from email.utils import formatdate


class Origin:
    """Answers anything with a body of the length that the path ends in, and counts."""

    def __init__(self, settings, delay_s=0.0):
        self.count, self.delay_s = 0, delay_s
        self.address = settings.origin.split(":")
        ready = threading.Event()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.run, args=(ready,), daemon=True)
        self.thread.start()
        ready.wait()

    def run(self, ready):
        asyncio.set_event_loop(self.loop)
        host, port = self.address
        start = asyncio.start_server(self.serve, host, int(port), backlog=4096)
        self.server = self.loop.run_until_complete(start)
        ready.set()
        self.loop.run_forever()

    async def serve(self, reader, writer):
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.count += 1
                path = head.split(b" ", 2)[1].decode()
                found = re.search(r"(\d+)$", path)
                # wrk asks for / before it loads its script.
                length = int(found.group(1)) if found else 0
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                writer.write(
                    b"HTTP/1.1 200 OK\r\nCache-Control: max-age=86400\r\nContent-Type: text/plain\r\n"
                    b"ETag: \"1\"\r\nDate: %s\r\nContent-Length: %d\r\n\r\n"
                    % (formatdate(usegmt=True).encode(), length) + b"x" * length)
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()

    def close(self):
        async def stop():
            self.server.close()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.loop.stop()
        self.loop.call_soon_threadsafe(lambda: self.loop.create_task(stop()))
        self.thread.join()
        self.loop.close()


async def get(port, path, host=None):
    """One request on a connection of its own; the length of the body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        host = host or f"127.0.0.1:{port}"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        data = await reader.read(-1)
        head, _, body = data.partition(b"\r\n\r\n")
        return len(body) if head.startswith(b"HTTP/1.1 200") else -1
    except ConnectionError:
        return -1
    finally:
        writer.close()


async def get_all(port, paths, at_once, host=None):
    places = asyncio.Semaphore(at_once)

    async def one(path):
        async with places:
            return await get(port, path, host)

    return await asyncio.gather(*(one(path) for path in paths))
