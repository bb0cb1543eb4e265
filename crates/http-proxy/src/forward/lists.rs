//! What a rule lists, as sets: networks, and destinations by name or by network; and the files that
//! rules name for long lists.
//!
//! Invariants: a look-up takes as long in a long list as in a short one, and no longer than a
//! client may make it by the length of a host's name; a file with a wrong line is not used at all,
//! as a list that denies would let through what the line meant. Files are read when rules are put
//! into use, at the start and at a reload. No threads.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::net::IpAddr;
use std::path::Path;

use ipnet::IpNet;

use crate::error::ProxyError;
use crate::forward::access_rule::Destination;
use crate::forward::embedded::forms;

/// Longest line of a file, its end left out: longer than any name.
const LINE_BYTES_MAX: usize = 4096;

/// Networks. A look-up costs as much as there are different lengths of prefixes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Networks(Vec<(u8, HashSet<IpNet>)>);

impl Networks {
    pub(crate) fn add(&mut self, network: IpNet) {
        let length = network.prefix_len();
        let place = self.0.iter().position(|(of, _)| *of == length).unwrap_or_else(|| {
            self.0.push((length, HashSet::new()));
            self.0.len() - 1
        });
        self.0[place].1.insert(network.trunc());
    }

    pub(crate) fn contain(&self, address: IpAddr) -> bool {
        let is_in = |(length, networks): &(u8, HashSet<IpNet>)| {
            // No prefix of an IPv4 address is that long: `new` says so.
            IpNet::new(address, *length).is_ok_and(|network| networks.contains(&network.trunc()))
        };
        self.0.iter().any(is_in)
    }
}

/// Where requests go, by name and by network.
#[derive(Debug, Clone, Default)]
pub(crate) struct Destinations {
    hosts: HashSet<Box<str>>,
    domains: HashSet<Box<str>>,
    /// Length of the longest of these.
    name_bytes_max: usize,
    networks: Networks,
}

impl Destinations {
    pub(crate) fn add(&mut self, destination: Destination) {
        match destination {
            Destination::Host(name) => {
                self.name_bytes_max = self.name_bytes_max.max(name.len());
                self.hosts.insert(name.into());
            }
            Destination::Domain(name) => {
                self.name_bytes_max = self.name_bytes_max.max(name.len());
                self.domains.insert(name.into());
            }
            Destination::Network(network) => self.networks.add(network),
        }
    }

    /// Whether a host is one of them; `None` if that depends on its address. `every_form`: also if
    /// the address only translates to one of them.
    pub(crate) fn contain(
        &self,
        host: &str,
        address: Option<IpAddr>,
        every_form: bool,
    ) -> Option<bool> {
        // Longer ones are not even hashed: a client may send a name of thousands of labels.
        let may_be = |name: &str| name.len() <= self.name_bytes_max;
        let is_host = may_be(host) && self.hosts.contains(host);
        let mut domains = domains_of(host).filter(|name| may_be(name));
        if is_host || domains.any(|name| self.domains.contains(name)) {
            return Some(true);
        }
        if self.networks.0.is_empty() {
            return Some(false);
        }
        let mut forms = forms(address?).take(if every_form { usize::MAX } else { 1 });
        Some(forms.any(|form| self.networks.contain(form)))
    }
}

/// A name and all domains that it is in.
fn domains_of(host: &str) -> impl Iterator<Item = &str> {
    let parents = host.match_indices('.').map(|(dot, _)| &host[dot + 1..]);
    std::iter::once(host).chain(parents)
}

/// Reads a file with one entry a line; what follows a `#` is a comment. Returns how many entries
/// there are.
///
/// # Errors
/// It cannot be read, is no file (a pipe would be empty the second time), or a line of it is not
/// understood.
pub(crate) fn read<T>(
    path: &Path,
    entry: impl Fn(&str) -> Result<T, &'static str>,
    mut add: impl FnMut(T),
) -> Result<usize, ProxyError> {
    let error = |reason: String| ProxyError::AccessList { path: path.to_owned(), reason };
    let mut file = open(path).map_err(|source| error(source.to_string()))?;
    let (mut count, mut line) = (0, Vec::new());
    for number in 1.. {
        line.clear();
        let mut some = file.by_ref().take(LINE_BYTES_MAX as u64 + 1);
        if some.read_until(b'\n', &mut line).map_err(|source| error(source.to_string()))? == 0 {
            break;
        }
        let wrong = |reason: &str| error(format!("line {number}: {reason}"));
        if line.len() > LINE_BYTES_MAX && !line.ends_with(b"\n") {
            return Err(wrong(&format!("longer than {LINE_BYTES_MAX} bytes")));
        }
        let text = std::str::from_utf8(&line).map_err(|_| wrong("not in UTF-8"))?;
        let text = text.trim_start_matches('\u{feff}').split('#').next().unwrap_or_default().trim();
        if !text.is_empty() {
            add(entry(text).map_err(|reason| wrong(&format!("`{text}`: {reason}")))?);
            count += 1;
        }
    }
    Ok(count)
}

fn open(path: &Path) -> io::Result<BufReader<File>> {
    // Looked at before it is opened, since that may wait for a writer of a pipe.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    File::open(path).map(BufReader::new)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};
    use std::path::PathBuf;

    use super::*;
    use crate::forward::access_rule;

    /// As the sets decide, by going through a list.
    fn is_listed(list: &[Destination], host: &str, address: Option<IpAddr>) -> Option<bool> {
        let holds = |one: &Destination| match one {
            Destination::Host(name) => Some(host == name),
            Destination::Domain(name) => Some(host == name || host.ends_with(&format!(".{name}"))),
            Destination::Network(network) => address.map(|address| network.contains(&address)),
        };
        let all: Vec<_> = list.iter().map(holds).collect();
        match all.contains(&Some(true)) {
            true => Some(true),
            false => (!all.contains(&None)).then_some(false),
        }
    }

    #[test]
    fn sets_decide_as_lists_do() {
        let mut random = fastrand::Rng::with_seed(5);
        let name = |random: &mut fastrand::Rng| {
            let labels = ["a", "b", "aa", "com"];
            let words: Vec<_> =
                (0..random.usize(1..4)).map(|_| labels[random.usize(..4)]).collect();
            words.join(".")
        };
        let address = |random: &mut fastrand::Rng| -> IpAddr {
            match random.bool() {
                true => Ipv4Addr::new(10, random.u8(..2), 0, random.u8(..4)).into(),
                false => {
                    Ipv6Addr::new(0x2001, random.u16(..2), 0, 0, 0, 0, 0, random.u16(..4)).into()
                }
            }
        };
        let mut seen = [0; 3];
        for _ in 0..2000 {
            let one = |random: &mut fastrand::Rng| match random.u8(..4) {
                0 => Destination::Host(name(random)),
                1 => Destination::Domain(name(random)),
                _ => {
                    let address = address(random);
                    let most = if address.is_ipv4() { 32 } else { 128 };
                    Destination::Network(IpNet::new(address, random.u8(..=most)).unwrap())
                }
            };
            let list: Vec<_> = (0..random.usize(..4)).map(|_| one(&mut random)).collect();
            let mut set = Destinations::default();
            list.iter().for_each(|one| set.add(one.clone()));
            let (host, at) = (name(&mut random), random.bool().then(|| address(&mut random)));
            let decided = set.contain(&host, at, false);
            assert_eq!(decided, is_listed(&list, &host, at), "{host} {at:?} in {list:?}");
            seen[decided.map_or(2, usize::from)] += 1;
        }
        assert!(seen.iter().all(|count| *count > 100), "{seen:?}");
    }

    /// A client chooses the name, of up to `limits.uri_bytes_max`; the time would be that of its
    /// square.
    #[test]
    fn of_a_long_name_only_its_end_is_looked_up() {
        let mut set = Destinations::default();
        set.add(Destination::Domain("ads.test".to_owned()));
        let long = "a.".repeat(1 << 22);
        assert_eq!(set.contain(&format!("{long}ads.test"), None, true), Some(true));
        assert_eq!(set.contain(&format!("{long}b.test"), None, true), Some(false));
    }

    fn read_text(text: &[u8]) -> Result<(usize, Vec<String>), String> {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("list");
        std::fs::write(&path, text).unwrap();
        let mut entries = Vec::new();
        let count = read(&path, access_rule::destination, |one| entries.push(one.to_string()));
        count.map(|count| (count, entries)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_has_an_entry_a_line() {
        let text = "\u{feff}# names\r\n\n .Ads.test  # all of it\nb.test.\n10.0.0.0/8\n\t::1";
        let entries = [".ads.test", "b.test", "10.0.0.0/8", "::1/128"].map(str::to_owned);
        assert_eq!(read_text(text.as_bytes()), Ok((4, entries.to_vec())));
        assert_eq!(read_text(b""), Ok((0, Vec::new())));
    }

    #[test]
    fn a_file_with_a_wrong_line_is_refused_with_its_number() {
        let long = [b'a'; LINE_BYTES_MAX + 1];
        let whole = read_text(&long[1..]);
        assert_eq!(whole.map(|(count, _)| count), Ok(1));
        for (text, said) in [
            (&b"a.test\nhttp://b.test/\n"[..], "line 2: `http://b.test/`: not a destination"),
            (b"a.test b.test", "line 1: `a.test b.test`: not a destination"),
            (b"\nall\n", "line 2: `all`: a condition that is left out holds for all"),
            (&long, "line 1: longer than 4096 bytes"),
            (b"a\nb\xff", "line 2: not in UTF-8"),
        ] {
            let error = read_text(text).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
        for (path, said) in [("/no/such/list", "No such file"), ("/dev/null", "no regular file")] {
            let none = read(&PathBuf::from(path), access_rule::client, |_| {});
            let error = none.unwrap_err().to_string();
            assert!(error.contains(path) && error.contains(said), "{error}");
        }
    }
}
