//! Purge marks, which every hit is checked against so that purged responses are not served.
//! `handler::purge` receives the purge orders.
//!
//! A purge is a mark: matching responses fetched before it are gone, or stale. Each stored response
//! carries a `stamp` to check; `marks` has the marks in memory, the old ones in `older`; `saved`
//! has the bytes of a snapshot of them, and of the purges since; `copies` keeps both in the store;
//! `ledger` is all of it. `recent` remembers those purges that set no mark.

pub(crate) mod copies;
pub(crate) mod ledger;
pub(crate) mod marks;
mod older;
pub(crate) mod recent;
pub(crate) mod saved;
pub(crate) mod stamp;

use damelo::GroupId;

/// The effect of a purge on the responses that it covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PurgeKind {
    /// Removed: never served again.
    Hard,
    /// Stale: validated before use, and served where a stale response may be.
    Soft,
}

/// Hash of a URL, as marks use it.
pub(crate) fn url_hash(url: &[u8]) -> u64 {
    GroupId::of(url).get()
}

/// The URL at the beginning of a key: the rest begins with a byte that occurs in no URL.
pub(crate) fn url_of_key(key: &[u8]) -> &[u8] {
    let end = key.iter().position(|byte| *byte < b' ').unwrap_or(key.len());
    &key[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_begin_with_their_url() {
        assert_eq!(url_of_key(b"http://h/a"), b"http://h/a");
        assert_eq!(url_of_key(b"http://h/a\0variant/\x01"), b"http://h/a");
        assert_eq!(url_of_key(b"http://h/a\x02x=1"), b"http://h/a");
    }
}
