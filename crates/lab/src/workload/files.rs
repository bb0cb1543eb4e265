//! Files read through a proxy as in Hades (2009) §4.2: 100 KB (two users with a sequence of 1000
//! files each, or one with 1000), 1 MB (two with 500 each, or one with 500), 100 MB and 1 GB (five
//! files at once, or one). A request is a read of one chunk (256 KiB there); the object is the
//! chunk, its URL begins with the file's. `passes=2` reads all again, the paper's warm cache.
//!
//! Readers that run at the same time take turns at random, as threads do.

use std::fmt::Write as _;

use fastrand::Rng;

use super::parameters::Parameters;
use super::{Generator, Made};

pub(super) const PARAMETERS: &str = "seed=1&size=1MB&mode=parallel&passes=1&chunk=262144";

/// Chunk after chunk at about 20 MB/s, the paper's throughput.
const BYTES_PER_US: u64 = 20;

/// One thread that reads files one after the other.
struct Reader {
    user: u64,
    first_file: u64,
    files: u64,
    file: u64,
    offset: u64,
}

pub(super) struct Files {
    rng: Rng,
    size: String,
    file_bytes: u64,
    chunk_bytes: u64,
    passes: u64,
    readers: Vec<Reader>,
    running: Vec<usize>,
    time_us: u64,
}

impl Files {
    pub(super) fn new(p: &mut Parameters) -> Result<Files, String> {
        let parallel = match p.text("mode").as_str() {
            "parallel" => true,
            "sequential" => false,
            other => return Err(format!("`mode={other}`: write parallel or sequential")),
        };
        let size = p.text("size");
        // Bytes of a file; readers, and files of each, in parallel and in sequence.
        let (file_bytes, together, alone) = match size.as_str() {
            "100KB" => (100 << 10, (2, 1000), 1000),
            "1MB" => (1 << 20, (2, 500), 500),
            "100MB" => (100 << 20, (5, 1), 1),
            "1GB" => (1 << 30, (5, 1), 1),
            other => return Err(format!("`size={other}`: write 100KB, 1MB, 100MB or 1GB")),
        };
        let (readers, files) = if parallel { together } else { (1, alone) };
        let reader =
            |n: u64| Reader { user: n % 2, first_file: n * files, files, file: 0, offset: 0 };
        Ok(Files {
            rng: Rng::with_seed(p.seed()?),
            size,
            file_bytes,
            chunk_bytes: p.whole("chunk", 512, 1 << 40)?,
            passes: p.whole("passes", 1, 1 << 20)?,
            readers: (0..readers).map(reader).collect(),
            running: Vec::new(),
            time_us: 0,
        })
    }
}

impl Generator for Files {
    fn make(&mut self, made: &mut Made) -> bool {
        if self.running.is_empty() {
            if self.passes == 0 {
                return false;
            }
            self.passes -= 1;
            self.running = (0..self.readers.len()).collect();
            self.readers.iter_mut().for_each(|reader| (reader.file, reader.offset) = (0, 0));
        }
        let turn = self.rng.usize(0..self.running.len());
        let reader = &mut self.readers[self.running[turn]];
        let bytes = self.chunk_bytes.min(self.file_bytes - reader.offset);
        made.time_us = self.time_us;
        made.method = "GET";
        made.size_bytes = bytes;
        made.client.clear();
        made.url.clear();
        let (file, chunk) = (reader.first_file + reader.file, reader.offset / self.chunk_bytes);
        // Writing to a String cannot fail.
        let _ = write!(made.client, "u{}", reader.user);
        let _ = write!(made.url, "file://origin.example/{}/f{file}/c{chunk}", self.size);
        self.time_us += (bytes / BYTES_PER_US).max(1);
        reader.offset += bytes;
        if reader.offset == self.file_bytes {
            (reader.file, reader.offset) = (reader.file + 1, 0);
        }
        if reader.file == reader.files {
            self.running.swap_remove(turn);
        }
        true
    }
}
