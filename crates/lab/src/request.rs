//! One request of a trace or workload, and the names behind its numbers.
//!
//! Owns nothing but data. Invariant: ids in a [`Request`] index the [`Catalogue`] it came with, if
//! there is one. Threads: plain values.

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// Ask for the object; a miss fetches and stores it.
    Read,
    /// A new version arrives: what is stored is replaced.
    Write,
    /// The object is no longer wanted.
    Delete,
}

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Time since the start of the trace, in microseconds.
    pub time_us: u64,
    /// Who asks.
    pub client: u32,
    /// Which object.
    pub key: u64,
    /// Size of the object in bytes.
    pub size_bytes: u64,
    /// Which host the object belongs to.
    pub host: u32,
    /// What is done.
    pub op: Op,
}

/// Names for ids: the URL of a key, the name of a host. Keys without a name get one made from their
/// number, so that designs which look at names work on anonymous traces too.
#[derive(Debug, Clone, Default)]
pub struct Catalogue {
    urls: Vec<String>,
    hosts: Vec<String>,
}

impl Catalogue {
    /// No names at all.
    pub fn new() -> Catalogue {
        Catalogue::default()
    }

    /// Adds a URL; its key is the number of URLs before it.
    pub fn push_url(&mut self, url: &str) -> u64 {
        self.urls.push(url.to_owned());
        self.urls.len() as u64 - 1
    }

    /// Adds a host; its id is the number of hosts before it.
    pub fn push_host(&mut self, host: &str) -> u32 {
        self.hosts.push(host.to_owned());
        self.hosts.len() as u32 - 1
    }

    /// Number of URLs.
    pub fn len(&self) -> usize {
        self.urls.len()
    }

    /// True without URLs.
    pub fn is_empty(&self) -> bool {
        self.urls.is_empty()
    }

    /// The URL of a key, if it has one.
    pub fn url(&self, key: u64) -> Option<&str> {
        self.urls.get(usize::try_from(key).ok()?).map(String::as_str)
    }

    /// The name of a host, if it has one.
    pub fn host(&self, host: u32) -> Option<&str> {
        self.hosts.get(host as usize).map(String::as_str)
    }
}
