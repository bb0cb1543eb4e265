//! How keys (any bytes), groups (a name or `id:NUMBER`) and volumes (`PATH,PATH`) are written on
//! the command line and printed. Pure text, no I/O.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use damelo::GroupId;
use serde_json::{Value, json};

/// A group as given on the command line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GroupName(pub(crate) GroupId);

impl FromStr for GroupName {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<GroupName, Self::Err> {
        match text.strip_prefix("id:") {
            Some(number) => number.parse().map(|id| GroupName(GroupId::new(id))),
            None => Ok(GroupName(GroupId::of(text))),
        }
    }
}

/// The volumes of one store, in order, never empty.
#[derive(Debug, Clone)]
pub(crate) struct Volumes(Vec<PathBuf>);

impl Volumes {
    /// The first, which names the store in messages.
    pub(crate) fn first(&self) -> &Path {
        &self.0[0]
    }

    /// All of them.
    pub(crate) fn all(&self) -> &[PathBuf] {
        &self.0
    }
}

impl From<&Path> for Volumes {
    fn from(path: &Path) -> Volumes {
        Volumes(vec![path.to_owned()])
    }
}

/// As on the command line, where a path may be any bytes.
impl From<OsString> for Volumes {
    fn from(text: OsString) -> Volumes {
        let paths = text.as_bytes().split(|byte| *byte == b',');
        Volumes(paths.map(|path| PathBuf::from(OsStr::from_bytes(path))).collect())
    }
}

/// A key's bytes as given on the command line.
pub(crate) fn key_bytes(argument: &OsStr) -> &[u8] {
    argument.as_bytes()
}

/// A key for people: as it is where that is unambiguous in one line, else with `\xNN` for bytes
/// that do not print and `\\` for a backslash.
pub(crate) fn key_text(key: &[u8]) -> String {
    let mut text = String::with_capacity(key.len());
    for chunk in key.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c == '\\' {
                text.push_str("\\\\");
            } else if c.is_control() {
                push_bytes(&mut text, c.encode_utf8(&mut [0; 4]).as_bytes());
            } else {
                text.push(c);
            }
        }
        push_bytes(&mut text, chunk.invalid());
    }
    text
}

/// A URL or host that a client asked for, for a terminal: ASCII, with `\xNN` for bytes that do not
/// print and `\\` for a backslash. Other characters would be as wide as the terminal likes, and
/// some turn the order of those around them.
pub(crate) fn url_text(url: &str) -> String {
    let mut text = String::with_capacity(url.len());
    for c in url.chars() {
        if c == '\\' {
            text.push_str("\\\\");
        } else if c.is_ascii() && !c.is_ascii_control() {
            text.push(c);
        } else {
            push_bytes(&mut text, c.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
    text
}

fn push_bytes(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, "\\x{byte:02x}");
    }
}

/// A key and more about it for programs. A key that is no text is also in `key_hex`.
pub(crate) fn keyed(key: &[u8], more: Value) -> Value {
    let mut all = match std::str::from_utf8(key) {
        Ok(text) => json!({ "key": text }),
        Err(_) => json!({ "key": key_text(key), "key_hex": hex(key) }),
    };
    if let (Some(all), Value::Object(more)) = (all.as_object_mut(), more) {
        all.extend(more);
    }
    all
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_tell_any_two_keys_apart() {
        let shown = |key: &[u8]| keyed(key, json!({ "n": 1 })).to_string();
        assert_eq!(shown(b"a\\xff"), r#"{"key":"a\\xff","n":1}"#);
        assert_eq!(shown(b"a\xff"), r#"{"key":"a\\xff","key_hex":"61ff","n":1}"#);
    }

    #[test]
    fn volumes_may_have_any_name() {
        let volumes = Volumes::from(OsStr::from_bytes(b"a\xff,b").to_owned());
        let names: Vec<&[u8]> =
            volumes.all().iter().map(|path| path.as_os_str().as_bytes()).collect();
        assert_eq!(names, [&b"a\xff"[..], b"b"]);
        assert_eq!(volumes.first().as_os_str().as_bytes(), b"a\xff");
    }

    #[test]
    fn groups_go_by_name_or_number() {
        assert_eq!("id:7".parse::<GroupName>().unwrap().0, GroupId::new(7));
        assert_eq!("example.org".parse::<GroupName>().unwrap().0, GroupId::of("example.org"));
        assert!("id:seven".parse::<GroupName>().is_err());
    }

    #[test]
    fn keys_print_in_one_line_without_ambiguity() {
        assert_eq!(key_text(b"http://a/b?c"), "http://a/b?c");
        assert_eq!(key_text("caf\u{e9}".as_bytes()), "caf\u{e9}");
        assert_eq!(key_text(b"a\n\x01\xff\\"), "a\\x0a\\x01\\xff\\\\");
        assert_eq!(key_text("\u{85}".as_bytes()), "\\xc2\\x85");
        assert_eq!(hex(&[0, 255]), "00ff");
    }
}
