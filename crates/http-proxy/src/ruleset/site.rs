//! The sites that rules name: origins that are alike, and the host that they are asked with.
//!
//! Invariant: two sites of which clients could get different responses to the same request are not
//! equal, and add different parts to keys. Plain data, no threads.

use crate::rules::key::is_plain_authority;

/// The `Host` of requests to a site.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum HostHeader {
    /// As the client sent it.
    Client,
    /// That of the first origin's URL.
    Origin,
    /// This one, in lower case.
    Name(String),
}

/// A site: the URLs of its equivalent origins, and what they are asked with if a rule says so.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Site {
    pub(crate) to: Vec<String>,
    /// Those that are asked when none of these answers.
    pub(crate) backup: Vec<String>,
    pub(crate) host_header: Option<HostHeader>,
}

impl HostHeader {
    pub(crate) fn read(text: &str) -> Result<HostHeader, String> {
        match text {
            "client" => return Ok(HostHeader::Client),
            "origin" => return Ok(HostHeader::Origin),
            _ => {}
        }
        let name = text.to_ascii_lowercase();
        let is_host = !name.is_empty() && is_plain_authority(name.as_bytes());
        match is_host {
            true => Ok(HostHeader::Name(name)),
            false => {
                Err(format!("\"{text}\" is neither client, origin nor a host such as app.example"))
            }
        }
    }

    /// What keys have of it; no host is empty or has a blank.
    pub(super) fn in_key(&self) -> &[u8] {
        match self {
            HostHeader::Client => b" client",
            HostHeader::Origin => b" origin",
            HostHeader::Name(name) => name.as_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_told_from_words() {
        let name = |text: &str| HostHeader::Name(text.to_owned());
        for (text, expected) in [
            ("client", HostHeader::Client),
            ("origin", HostHeader::Origin),
            ("App.example:81", name("app.example:81")),
            ("[::1]", name("[::1]")),
        ] {
            assert_eq!(HostHeader::read(text), Ok(expected), "{text}");
        }
        for text in ["", "a b", "http://a.example", "a/b", "u@a", "m\u{fc}ller.example"] {
            assert!(HostHeader::read(text).is_err(), "{text}");
        }
    }
}
