//! Values of fields that rules set, in which `{client}` and its like stand for what a request says,
//! and `{cache}`, in an answer's, for what the cache did.
//!
//! Invariant: whatever a client sent, what is filled in is one value of a field, and a name in
//! braces that stands for nothing is refused when the rule is read. Pure, no threads.

use std::net::IpAddr;

use http::HeaderValue;

use super::matching::without_port;
use super::respond::escaped;
use crate::rules::key::without_root;

/// What stands for what, in the order of the documentation.
const NAMES: [(&str, Piece); 6] = [
    ("client", Piece::Client),
    ("host", Piece::Host),
    ("scheme", Piece::Scheme),
    ("target", Piece::Target),
    ("request_id", Piece::RequestId),
    ("cache", Piece::Cache),
];

/// A value as a rule has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FieldValue {
    /// Nothing is filled in.
    Whole(HeaderValue),
    Pieces(Pieces),
}

/// What a value consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pieces(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Client,
    Host,
    Scheme,
    Target,
    RequestId,
    Cache,
}

/// What a request says, to be filled in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Told<'r> {
    /// The client's address, if there is a client.
    pub(crate) client: Option<IpAddr>,
    pub(crate) host: &'r str,
    pub(crate) scheme: &'static str,
    pub(crate) path_and_query: &'r str,
    /// Made where a rule asks for it.
    pub(crate) request_id: Option<&'r str>,
}

impl FieldValue {
    /// Parses a value. Braces around anything but a word, as JSON has them, are text.
    pub(crate) fn read(text: &str) -> Result<FieldValue, String> {
        let whole = HeaderValue::from_str(text)
            .map_err(|_| format!("\"{text}\" has characters that a header cannot have"))?;
        let (mut pieces, mut plain, mut rest) = (Vec::new(), String::new(), text);
        while let Some(open) = rest.find('{') {
            plain.push_str(&rest[..open]);
            let behind = &rest[open + 1..];
            let Some((word, after)) = behind.split_once('}').filter(|(word, _)| is_word(word))
            else {
                plain.push('{');
                rest = behind;
                continue;
            };
            let Some((_, piece)) = NAMES.iter().find(|(name, _)| *name == word) else {
                let names = NAMES.map(|(name, _)| format!("{{{name}}}")).join(", ");
                return Err(format!(
                    "\"{text}\": {{{word}}} stands for nothing; there are {names}"
                ));
            };
            if !plain.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
            }
            pieces.push(piece.clone());
            rest = after;
        }
        if pieces.is_empty() {
            return Ok(FieldValue::Whole(whole));
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(FieldValue::Pieces(Pieces(pieces)))
    }

    /// Whether it has `{request_id}`.
    pub(super) fn has_request_id(&self) -> bool {
        self.has(&Piece::RequestId)
    }

    /// Whether it has `{cache}`, which is known only once there is an answer.
    pub(crate) fn has_cache(&self) -> bool {
        self.has(&Piece::Cache)
    }

    /// Whether it has `{host}`.
    pub(super) fn has_host(&self) -> bool {
        self.has(&Piece::Host)
    }

    /// Whether it has `{scheme}`.
    pub(super) fn has_scheme(&self) -> bool {
        self.has(&Piece::Scheme)
    }

    fn has(&self, piece: &Piece) -> bool {
        matches!(self, FieldValue::Pieces(Pieces(pieces)) if pieces.contains(piece))
    }

    /// The value for a request; `None` if it would be empty or no value of a field.
    pub(super) fn of(&self, told: &Told<'_>) -> Option<HeaderValue> {
        self.of_answer(told, "")
    }

    /// The value for an answer, of which this word says what the cache did; `None` as above.
    pub(super) fn of_answer(&self, told: &Told<'_>, cache: &str) -> Option<HeaderValue> {
        let pieces = match self {
            FieldValue::Whole(value) => return Some(value.clone()),
            FieldValue::Pieces(Pieces(pieces)) => pieces,
        };
        let mut text = String::new();
        for piece in pieces {
            match piece {
                Piece::Text(part) => text.push_str(part),
                Piece::Client => {
                    if let Some(client) = told.client {
                        text.push_str(&client.to_string());
                    }
                }
                // As in the key: with and without the root's dot it is one host.
                Piece::Host => text.push_str(without_root(without_port(told.host))),
                Piece::Scheme => text.push_str(told.scheme),
                Piece::Target => text.push_str(&escaped(told.path_and_query)),
                Piece::RequestId => text.push_str(told.request_id.unwrap_or_default()),
                Piece::Cache => text.push_str(cache),
            }
        }
        HeaderValue::try_from(text).ok().filter(|value| !value.is_empty())
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_braces_stand_for_what_the_request_says() {
        let told = Told {
            client: Some([192, 0, 2, 7].into()),
            host: "a.test.:81",
            scheme: "https",
            path_and_query: "/\u{e9}?b",
            request_id: Some("7f"),
        };
        let nobody =
            Told { client: None, host: "", scheme: "http", path_and_query: "/", request_id: None };
        for (text, value, value_of_nobody) in [
            ("plain", Some("plain"), Some("plain")),
            ("", Some(""), Some("")),
            ("{client}", Some("192.0.2.7"), None),
            ("for={client};by=_x", Some("for=192.0.2.7;by=_x"), Some("for=;by=_x")),
            ("{scheme}://{host}{target}", Some("https://a.test/%C3%A9?b"), Some("http:///")),
            ("{request_id}", Some("7f"), None),
            ("{\"a\":{}}", Some("{\"a\":{}}"), Some("{\"a\":{}}")),
            ("{\"a\":\"{client}\"}", Some("{\"a\":\"192.0.2.7\"}"), Some("{\"a\":\"\"}")),
            ("{{client}}", Some("{192.0.2.7}"), Some("{}")),
            ("{client", Some("{client"), Some("{client")),
            ("client}", Some("client}"), Some("client}")),
        ] {
            let field = FieldValue::read(text).unwrap();
            let as_text =
                |value: Option<HeaderValue>| value.map(|v| v.to_str().unwrap().to_owned());
            assert_eq!(as_text(field.of(&told)).as_deref(), value, "{text}");
            assert_eq!(as_text(field.of(&nobody)).as_deref(), value_of_nobody, "{text}");
        }
        for text in ["{path}", "a {clients} b", "{CLIENT}", "{0}", "a\nb"] {
            assert!(FieldValue::read(text).is_err(), "{text}");
        }
        let field = FieldValue::read("{cache} from {host}").unwrap();
        assert!(field.has_cache() && field.of_answer(&told, "hit").unwrap() == "hit from a.test");
        assert!(FieldValue::read("a{request_id}").unwrap().has_request_id());
        assert!(!FieldValue::read("request_id").unwrap().has_request_id());
        let told = FieldValue::read("{host}").unwrap();
        assert!(told.has_host() && !told.has_scheme());
    }
}
