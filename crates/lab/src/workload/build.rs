//! A source tree compiled through a file proxy, after Hades (2009) §4.3: each client reads every
//! source and the headers it includes, writes an object file of its own, and at the end reads all
//! of them and writes one program. Many small files, headers read again and again, writes among
//! reads.
//!
//! The paper compiled the Linux kernel and gives no file sizes: sources and headers are log-normal
//! with medians of 8 and 3 KiB, headers are included with a Zipf popularity (alpha 1).

use std::fmt::Write as _;

use fastrand::Rng;

use super::parameters::Parameters;
use super::zipf::{Zipf, normal};
use super::{Generator, Made};
use crate::ids::mix;

pub(super) const PARAMETERS: &str = "seed=1&sources=1000&headers=400&includes=20&clients=1";

const SOURCE_MEDIAN_BYTES: f64 = 8192.0;
const HEADER_MEDIAN_BYTES: f64 = 3072.0;
const SIGMA: f64 = 1.0;
/// An object file is about twice its source.
const OBJECT_FACTOR: u64 = 2;
const READ_US: u64 = 300;
const COMPILE_US: u64 = 200_000;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Next {
    Source,
    Header(u64),
    Object,
    LinkRead(u64),
    LinkWrite,
    Done,
}

struct Client {
    time_us: u64,
    source: u64,
    next: Next,
    /// Every client includes the same headers in the same source.
    rng: Rng,
}

pub(super) struct Build {
    seed: u64,
    sources: u64,
    includes: u64,
    headers: Zipf,
    clients: Vec<Client>,
}

impl Build {
    pub(super) fn new(p: &mut Parameters) -> Result<Build, String> {
        let seed = p.seed()?;
        let clients = p.whole("clients", 1, 1 << 16)?;
        let client = |n: u64| Client {
            time_us: n * 1000,
            source: 0,
            next: Next::Source,
            rng: Rng::with_seed(seed),
        };
        Ok(Build {
            seed,
            sources: p.whole("sources", 1, 1 << 32)?,
            includes: p.whole("includes", 0, 1 << 20)?,
            headers: Zipf::new(p.whole("headers", 1, 1 << 32)?, 1.0),
            clients: (0..clients).map(client).collect(),
        })
    }

    fn size(&self, kind: u64, file: u64, median_bytes: f64) -> u64 {
        let mut own = Rng::with_seed(mix(file ^ mix(kind ^ mix(self.seed).bits()).bits()).bits());
        (median_bytes * (SIGMA * normal(&mut own)).exp()).clamp(64.0, 4e6) as u64
    }

    fn step(&mut self, at: usize, made: &mut Made) {
        let source = self.clients[at].source;
        let source_bytes = self.size(0, source, SOURCE_MEDIAN_BYTES);
        let mut url = std::mem::take(&mut made.url);
        url.clear();
        // Writing to a String cannot fail, here and below.
        let _ = write!(url, "file://origin.example/tree/");
        let (method, bytes, next, took_us) = match self.clients[at].next {
            Next::Source => {
                let _ = write!(url, "src/s{source}.c");
                ("GET", source_bytes, self.after_header(0), READ_US)
            }
            Next::Header(n) => {
                let header = self.headers.rank(&mut self.clients[at].rng);
                let _ = write!(url, "include/h{header}.h");
                let bytes = self.size(1, header, HEADER_MEDIAN_BYTES);
                ("GET", bytes, self.after_header(n + 1), READ_US)
            }
            Next::Object => {
                let _ = write!(url, "out{at}/s{source}.o");
                self.clients[at].source += 1;
                let last = self.clients[at].source == self.sources;
                let next = if last { Next::LinkRead(0) } else { Next::Source };
                ("PUT", source_bytes * OBJECT_FACTOR, next, COMPILE_US)
            }
            Next::LinkRead(n) => {
                let _ = write!(url, "out{at}/s{n}.o");
                let bytes = self.size(0, n, SOURCE_MEDIAN_BYTES) * OBJECT_FACTOR;
                let next =
                    if n + 1 == self.sources { Next::LinkWrite } else { Next::LinkRead(n + 1) };
                ("GET", bytes, next, READ_US)
            }
            Next::LinkWrite | Next::Done => {
                let _ = write!(url, "out{at}/program");
                let sizes = (0..self.sources).map(|n| self.size(0, n, SOURCE_MEDIAN_BYTES));
                ("PUT", sizes.sum(), Next::Done, READ_US)
            }
        };
        let client = &mut self.clients[at];
        (made.url, made.method, made.size_bytes) = (url, method, bytes);
        made.time_us = client.time_us;
        client.next = next;
        client.time_us += took_us;
    }

    fn after_header(&self, read: u64) -> Next {
        if read == self.includes { Next::Object } else { Next::Header(read) }
    }
}

impl Generator for Build {
    fn make(&mut self, made: &mut Made) -> bool {
        let running =
            self.clients.iter().enumerate().filter(|(_, client)| client.next != Next::Done);
        let Some((at, _)) = running.min_by_key(|(at, client)| (client.time_us, *at)) else {
            return false;
        };
        made.client.clear();
        let _ = write!(made.client, "b{at}");
        self.step(at, made);
        true
    }
}
