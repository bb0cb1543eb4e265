//! One request of a trace, and the names behind its ids.
//!
//! Ids are dense: the n-th distinct object of a trace has key n, from 0, in order of first
//! appearance, and likewise hosts and clients. Whatever keeps state by id can therefore be a
//! vector. Plain data, any thread.

/// What a request does to its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Op {
    /// Asks for the object. So does POST: its answer is no new version of what its URL names.
    #[default]
    Read,
    /// Replaces the object (PUT, a file written); without a body it does nothing, as a DELETE that
    /// was refused.
    Write,
    /// Removes the object.
    Delete,
}

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Request {
    /// Microseconds since whatever the trace counts from.
    pub time_us: u64,
    /// Who asked; 0 if the trace does not say.
    pub client: u32,
    /// Which object: dense, see [`Catalogue::url`].
    pub key: u64,
    /// Size of the object or reply, as logged; 0 if the answer has no body of its own, see
    /// [`Request::has_body`].
    pub size_bytes: u64,
    /// Host the object comes from: dense, see [`Catalogue::host`].
    pub host: u32,
    /// What is asked.
    pub op: Op,
}

impl Request {
    /// False if the answer is no whole object: 304 (Not Modified) and what HEAD and a refused
    /// DELETE get, whatever size is logged (Squid counts headers), parts (206), what was broken
    /// off, and what has no bytes. It says nothing of the object's size.
    #[must_use]
    pub fn has_body(&self) -> bool {
        self.size_bytes > 0
    }
}

/// Names for the dense ids of a trace. Names live in one buffer each for URLs and hosts, so a
/// catalogue costs the length of the names and 4 to 8 bytes for each.
#[derive(Debug, Clone, Default)]
pub struct Catalogue {
    urls: Names,
    hosts: Names,
}

impl Catalogue {
    /// A catalogue without names.
    #[must_use]
    pub fn new() -> Catalogue {
        Catalogue::default()
    }

    /// Gives the next object its name; its key is the number of objects named before.
    pub fn push_url(&mut self, url: &[u8]) -> u64 {
        self.urls.push(url)
    }

    /// Gives the next host its name; its id is the number of hosts named before.
    ///
    /// # Panics
    /// If 2^32 hosts have names: a trace has ids of 32 bits.
    pub fn push_host(&mut self, host: &[u8]) -> u32 {
        u32::try_from(self.hosts.push(host)).expect("fewer than 2^32 hosts: a trace has u32 ids")
    }

    /// Name of an object: of a binary trace its number there, empty if nothing is known.
    #[must_use]
    pub fn url(&self, key: u64) -> &[u8] {
        self.urls.get(key)
    }

    /// Name of an object as text; `None` if it has none, or one that is not UTF-8.
    #[must_use]
    pub fn url_text(&self, key: u64) -> Option<&str> {
        let url = self.url(key);
        if url.is_empty() { None } else { std::str::from_utf8(url).ok() }
    }

    /// Name of a host, empty if it has none.
    #[must_use]
    pub fn host(&self, host: u32) -> &[u8] {
        self.hosts.get(u64::from(host))
    }

    /// Whether any host has a name: in a trace whose objects are numbers or keys, all come from the
    /// one that has none.
    #[must_use]
    pub fn has_hosts(&self) -> bool {
        !self.hosts.bytes.is_empty()
    }

    /// Objects named.
    #[must_use]
    pub fn urls_len(&self) -> u64 {
        self.urls.len()
    }

    /// Hosts named.
    #[must_use]
    pub fn hosts_len(&self) -> u64 {
        self.hosts.len()
    }
}

/// Byte strings end to end, with the end of each.
#[derive(Debug, Clone, Default)]
struct Names {
    bytes: Vec<u8>,
    ends: Vec<u64>,
}

impl Names {
    fn push(&mut self, name: &[u8]) -> u64 {
        let id = self.len();
        self.bytes.extend_from_slice(name);
        self.ends.push(self.bytes.len() as u64);
        id
    }

    fn len(&self) -> u64 {
        self.ends.len() as u64
    }

    fn get(&self, id: u64) -> &[u8] {
        let Ok(i) = usize::try_from(id) else { return &[] };
        let Some(&end) = self.ends.get(i) else { return &[] };
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.bytes[start as usize..end as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_by_id_and_unknown_ids_have_none() {
        let mut names = Catalogue::new();
        assert_eq!(names.push_url(b"http://a/x"), 0);
        assert_eq!(names.push_url(b""), 1);
        assert_eq!(names.push_url(b"http://b/"), 2);
        assert_eq!(names.push_host(b"a"), 0);
        assert_eq!(names.url(0), b"http://a/x");
        assert_eq!(names.url(1), b"");
        assert_eq!(names.url(2), b"http://b/");
        assert_eq!(names.url(3), b"");
        assert_eq!(names.host(0), b"a");
        assert_eq!((names.urls_len(), names.hosts_len()), (3, 1));
    }
}
