//! What hits are compared with, so that what was purged is not served. Orders to purge come from
//! `handler::purge`.
//!
//! A purge is a mark: what matches it and was fetched before it is gone, or stale. `stamp` is what a
//! stored response carries for that, `marks` are those in memory, `ledger` keeps them in the store.

pub(crate) mod ledger;
pub(crate) mod marks;
pub(crate) mod stamp;

use damelo::GroupId;

/// What becomes of what a purge covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PurgeKind {
    /// It is gone.
    Hard,
    /// It is stale: to be validated, and served where something stale may be.
    Soft,
}

/// Hash of a URL as marks know it.
pub(crate) fn url_hash(url: &[u8]) -> u64 {
    GroupId::of(url).get()
}

/// The URL at the beginning of a key: what follows it begins with a byte that no URL has.
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
