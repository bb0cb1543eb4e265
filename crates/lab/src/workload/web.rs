//! A web-like stream as a proxy sees it: clients with sessions, pages with embedded objects, hosts,
//! popularity that drifts, objects that change.
//!
//! A session starts at a page drawn by popularity and goes on, page by page, mostly on the same
//! host. A page brings its own embedded objects and some that all pages of the host share. Each
//! rank of the popularity is held by one page for a time and then by a new one (`drift`: share of
//! ranks that change hands in a day). An object changes now and then (`change`: share of objects
//! that do in a day), which shows as another size. Nothing is remembered but the sessions: what an
//! object is follows from its number.
//!
//! Staleness (`expire`: times a day that an answer goes stale, each object at its own times; 0 for
//! never) shows as a cache behind the clients would see it: what has gone stale since its last
//! answer is validated by the next request, which is a 304 without a body if the object is the
//! same, and a new answer if it has changed; what is fresh is answered as it was, changed or not.
//! With it the last answer of each object is remembered, too.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fmt::Write as _;

use fastrand::Rng;

use super::parameters::Parameters;
use super::zipf::{Zipf, exponential, web_size};
use super::{Generator, Made};
use crate::ids::mix;

pub(super) const PARAMETERS: &str = "seed=1&requests=100000&pages=20000&alpha=0.75&hosts=1000\
    &clients=200&embedded=4&stay=0.6&drift=0.02&change=0.05&expire=0";

const DAY_US: f64 = 86_400e6;
/// Pages of a session, on average.
const SESSION_PAGES: f64 = 6.0;
const THINK_US: f64 = 30e6;
const AWAY_US: f64 = 3600e6;
const EMBEDDED_GAP_US: f64 = 80e3;
/// Of embedded objects, how many are the host's rather than the page's own.
const SHARED_SHARE: f64 = 0.4;
const SHARED_OBJECTS: u64 = 12;
/// Popularity of hosts; what makes one of them large and most of them small.
const HOST_ALPHA: f64 = 1.0;

struct Client {
    rng: Rng,
    page: u64,
    host: u64,
    embedded_left: u64,
    pages_left: u64,
}

/// The last answer of an object.
#[derive(Clone, Copy)]
struct Answer {
    /// How many times it had gone stale.
    epoch: u64,
    version: u64,
}

pub(super) struct Web {
    seed: u64,
    left: u64,
    pages: Zipf,
    hosts: Zipf,
    embedded: f64,
    stay: f64,
    drift: f64,
    change: f64,
    expire: f64,
    /// By object; empty where nothing goes stale.
    answers: HashMap<u64, Answer>,
    clients: Vec<Client>,
    /// Who asks next, by time.
    queue: BinaryHeap<Reverse<(u64, usize)>>,
}

impl Web {
    pub(super) fn new(p: &mut Parameters) -> Result<Web, String> {
        let seed = p.seed()?;
        let clients = p.whole("clients", 1, 1 << 24)? as usize;
        let mut starts = Rng::with_seed(seed);
        let client = |n: usize| Client {
            rng: Rng::with_seed(mix(seed ^ mix(n as u64 + 1).bits()).bits()),
            page: 0,
            host: 0,
            embedded_left: 0,
            pages_left: 0,
        };
        Ok(Web {
            seed,
            left: p.whole("requests", 0, u64::MAX)?,
            pages: Zipf::new(p.whole("pages", 1, 1 << 40)?, p.number("alpha", 0.0, 4.0)?),
            hosts: Zipf::new(p.whole("hosts", 1, 1 << 40)?, HOST_ALPHA),
            embedded: p.number("embedded", 0.0, 1000.0)?,
            stay: p.number("stay", 0.0, 1.0)?,
            drift: p.number("drift", 0.0, 1000.0)?,
            change: p.number("change", 0.0, 1000.0)?,
            expire: p.number("expire", 0.0, 100_000.0)?,
            answers: HashMap::new(),
            clients: (0..clients).map(client).collect(),
            queue: (0..clients)
                .map(|n| Reverse((exponential(&mut starts, AWAY_US / 4.0) as u64, n)))
                .collect(),
        })
    }

    fn hash(&self, kind: u64, a: u64, b: u64) -> u64 {
        mix(a ^ mix(b ^ mix(kind ^ mix(self.seed).bits()).bits()).bits()).bits()
    }

    /// How many times something that happens `rate` times a day to each has happened to this one;
    /// every one has a phase of its own, so that it does not happen to all at once.
    fn times(&self, kind: u64, id: u64, rate: f64, time_us: u64) -> u64 {
        let phase = self.hash(kind, id, 0) as f64 / u64::MAX as f64;
        (time_us as f64 / DAY_US * rate + phase) as u64
    }

    fn host_of(&self, page: u64) -> u64 {
        self.hosts.rank(&mut Rng::with_seed(self.hash(1, page, 0)))
    }

    /// The page that holds a rank now.
    fn page_at(&self, rank: u64, time_us: u64) -> u64 {
        self.hash(2, rank, self.times(2, rank, self.drift, time_us))
    }

    /// Goes to another page; of eight candidates one on the same host is taken, if the client
    /// stays.
    fn turn_page(&mut self, n: usize, time_us: u64, stays: bool) {
        const CANDIDATES: usize = 8;
        let mut rng = self.clients[n].rng.clone();
        let home = self.clients[n].host;
        let mut page = self.page_at(self.pages.rank(&mut rng), time_us);
        for _ in 1..CANDIDATES {
            if !stays || self.host_of(page) == home {
                break;
            }
            page = self.page_at(self.pages.rank(&mut rng), time_us);
        }
        // A page that is popular nowhere else: the host's own next one.
        if stays && self.host_of(page) != home {
            page = self.hash(3, home, rng.u64(0..64));
        }
        let embedded = exponential(&mut Rng::with_seed(self.hash(4, page, 0)), self.embedded);
        let host = if stays { home } else { self.host_of(page) };
        let client = &mut self.clients[n];
        client.rng = rng;
        (client.page, client.host, client.embedded_left) = (page, host, embedded.round() as u64);
    }

    /// The object of a request: 0 is the page itself, others are embedded.
    fn object(&self, client: &Client, embedded: u64) -> (u64, bool) {
        let id = self.hash(5, client.page, embedded);
        let shared = embedded > 0 && (id as f64 / u64::MAX as f64) < SHARED_SHARE;
        if shared { (self.hash(6, client.host, id % SHARED_OBJECTS), true) } else { (id, false) }
    }
}

impl Web {
    /// Which version of an object an answer is of, and whether it says only that it is the last.
    fn answer(&mut self, object: u64, time_us: u64) -> (u64, bool) {
        let version = self.times(7, object, self.change, time_us);
        if self.expire == 0.0 {
            return (version, false);
        }
        let now = Answer { epoch: self.times(8, object, self.expire, time_us), version };
        match self.answers.get(&object).copied() {
            Some(last) if last.epoch == now.epoch => (last.version, false),
            last => {
                self.answers.insert(object, now);
                (version, last.is_some_and(|last| last.version == version))
            }
        }
    }
}

impl Generator for Web {
    fn make(&mut self, made: &mut Made) -> bool {
        let Some(Reverse((time_us, n))) = self.queue.pop() else { return false };
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        let embedded = if self.clients[n].embedded_left > 0 {
            self.clients[n].embedded_left -= 1;
            self.clients[n].embedded_left + 1
        } else {
            let starts = self.clients[n].pages_left == 0;
            if starts {
                let pages = exponential(&mut self.clients[n].rng, SESSION_PAGES);
                self.clients[n].pages_left = 1 + pages as u64;
            }
            self.clients[n].pages_left -= 1;
            let stays = !starts && self.clients[n].rng.f64() < self.stay;
            self.turn_page(n, time_us, stays);
            0
        };
        let client = &self.clients[n];
        let (object, shared) = self.object(client, embedded);
        let (version, is_same) = self.answer(object, time_us);
        let client = &self.clients[n];
        made.time_us = time_us;
        made.method = "GET";
        let bytes = web_size(object ^ mix(version).bits());
        (made.status, made.size_bytes) = if is_same { (304, 0) } else { (200, bytes) };
        made.client.clear();
        made.url.clear();
        let host = client.host;
        let kind = if embedded == 0 { "html" } else { "gif" };
        let path = if shared { "shared" } else { "p" };
        // Writing to a String cannot fail.
        let _ = write!(made.client, "c{n}");
        let _ = write!(made.url, "http://h{host}.web.example/{path}/{object:016x}.{kind}");
        let client = &mut self.clients[n];
        let pause = match (client.embedded_left, client.pages_left) {
            (0, 0) => AWAY_US,
            (0, _) => THINK_US,
            _ => EMBEDDED_GAP_US,
        };
        let next_us = time_us + 1 + exponential(&mut client.rng, pause) as u64;
        self.queue.push(Reverse((next_us, n)));
        true
    }
}
