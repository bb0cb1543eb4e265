//! How much of what origins answer is written to the disk of the cache: `disk_writes_max`.
//!
//! Invariant: what the proxy itself must keep is never refused, only counted: copies of purges, the
//! sentinels of groups, what lists the variants of a resource (a refusal would remove it, and with
//! it all that are stored), and the rest of an answer of which a part was taken. Threads: any.

use std::time::Duration;

use damelo::policy::{AdmissionPolicy, Newcomer, WriteBudget};

use super::{entry, groups, sections};
use crate::config::WriteLimit;
use crate::purge::copies;

struct CacheWrites(WriteBudget);

/// The store's admission policy for this limit.
pub fn admission_within(limit: WriteLimit) -> impl AdmissionPolicy + 'static {
    CacheWrites(WriteBudget::new(limit.bytes, limit.window))
}

impl AdmissionPolicy for CacheWrites {
    fn admit(&self, new: &Newcomer<'_>) -> Result<(), &'static str> {
        let bytes = new.bytes.unwrap_or(0);
        if must_be_stored(new) {
            self.0.charge(bytes, new.now);
            return Ok(());
        }
        let taken = self.0.take(bytes, new.now);
        if taken { Ok(()) } else { Err("disk_writes_max: spent for now") }
    }

    fn written_beside(&self, bytes: u64, now: Duration) {
        self.0.charge(bytes, now);
    }

    fn written_with(&self, bytes: u64, now: Duration) {
        self.0.charge(bytes, now);
    }
}

/// True for what is not an answer, or is not its first part. The metadata of a body in sections
/// come last and have no value.
fn must_be_stored(new: &Newcomer<'_>) -> bool {
    new.bytes == Some(0)
        || new.group == copies::group()
        || groups::is_sentinel(new.key)
        || entry::is_marker(new.metadata)
        || sections::is_later_section(new.key)
}

#[cfg(test)]
mod tests {
    use damelo::GroupId;
    use damelo::policy::Hint;

    use super::*;
    use crate::vault::entry::VaryMarker;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn offer(key: &[u8], bytes: Option<u64>, now: Duration) -> Newcomer<'_> {
        let group = GroupId::new(1);
        Newcomer { key, hash: 1, group, hint: Hint::Neutral, bytes, metadata: b"", now }
    }

    #[test]
    fn only_new_answers_are_refused() {
        let policy = admission_within(WriteLimit { bytes: 1000, window: DAY });
        let admits = |new: &Newcomer<'_>| policy.admit(new).is_ok();
        let now = Duration::ZERO;
        let key = b"http://a/";
        let section = |number| sections::section_key(key, 7, number);
        assert!(admits(&offer(&section(0), Some(1000), now)));
        assert!(!admits(&offer(key, Some(1), now)) && !admits(&offer(key, None, now)));
        assert!(!admits(&offer(&section(0), Some(1), now)), "another body");
        assert!(admits(&offer(&section(1), Some(1000), now)), "the rest of the first");
        assert!(admits(&offer(key, Some(0), now)), "and what it is");
        assert!(admits(&offer(&groups::sentinel_key(GroupId::new(3)), Some(8), now)));
        let copy = Newcomer { group: copies::group(), ..offer(b"\0purges", Some(100), now) };
        assert!(admits(&copy));
        let marker = VaryMarker { generation: 1, names: Vec::new() }.encode();
        assert!(admits(&Newcomer { metadata: &marker, ..offer(key, Some(50), now) }));
        assert!(!admits(&offer(key, Some(1), DAY)), "what had to be stored is paid back first");
        assert!(admits(&offer(key, Some(1), 3 * DAY)));
    }
}
