//! The state of one key: the sets `live` and `disk`, and how changes move values between them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Change, Key, ObjectState, Outcome, Seen, show};
use crate::content;
#[derive(Debug, Clone, Default)]
pub(super) struct KeyState {
    pub(super) live: Vec<ObjectState>,
    pub(super) miss: bool,
    pub(super) disk: Vec<ObjectState>,
    /// Older states of refreshed metadata: the index of a checkpoint may refer to them until the
    /// newer has been loaded.
    pub(super) loading: Vec<ObjectState>,
    pub(super) required: Option<ObjectState>,
    /// Whether the last event that touched the key is settled, so that a sync makes `live`
    /// required.
    pub(super) settled: bool,
    pub(super) ever: Vec<ObjectState>,
}

/// Calls `f` for every key that a change names.
pub(super) fn for_keys(
    keys: &mut BTreeMap<Key, KeyState>,
    change: &Change,
    mut f: impl FnMut(&Key, &mut KeyState),
) {
    match change {
        Change::Create { key, .. } | Change::SetMetadata { key, .. } | Change::Remove { key } => {
            f(key, keys.entry(Arc::clone(key)).or_default());
        }
        Change::PurgePrefix(prefix) => {
            keys.iter_mut().filter(|(k, _)| k.starts_with(prefix)).for_each(|(k, s)| f(k, s));
        }
        Change::PurgeGroup(_) | Change::PurgeAll => keys.iter_mut().for_each(|(k, s)| f(k, s)),
        Change::Sync => {}
    }
}

/// The part of a change that removes a value; `None` if the change does not remove it.
fn kills(change: &Change, state: &ObjectState) -> bool {
    match change {
        Change::PurgeGroup(group) => state.group == *group,
        Change::Remove { .. } | Change::PurgePrefix(_) | Change::PurgeAll => true,
        Change::Create { .. } | Change::SetMetadata { .. } | Change::Sync => false,
    }
}

fn add(set: &mut Vec<ObjectState>, state: ObjectState) {
    if !set.contains(&state) {
        set.push(state);
    }
}

fn with_metadata(set: &[ObjectState], version: u64, length: u32) -> Vec<ObjectState> {
    let renew = |s: &ObjectState| ObjectState {
        metadata_version: version,
        metadata_length: length,
        ..s.clone()
    };
    set.iter().map(renew).collect()
}

impl KeyState {
    pub(super) fn apply_live(&mut self, change: &Change, outcome: Outcome, strict: bool) {
        let failed = outcome == Outcome::Failed;
        match change {
            Change::Create { state, contested, .. } => {
                add(&mut self.ever, state.clone());
                if *contested && !failed {
                    add(&mut self.live, state.clone());
                    self.miss = true;
                } else if !failed {
                    self.live = vec![state.clone()];
                    self.miss = !strict;
                } else {
                    self.miss = true;
                }
            }
            Change::SetMetadata { version, length, .. } => {
                let renewed = with_metadata(&self.live, *version, *length);
                for state in with_metadata(&self.ever.clone(), *version, *length) {
                    add(&mut self.ever, state);
                }
                match outcome {
                    Outcome::Done => self.live = renewed,
                    Outcome::NothingThere => self.miss = true,
                    Outcome::NotDurable | Outcome::Failed => {
                        renewed.into_iter().for_each(|s| add(&mut self.live, s));
                        self.miss = true;
                    }
                }
            }
            Change::Sync => {}
            purge if failed => self.miss |= self.live.iter().any(|s| kills(purge, s)),
            purge => self.live.retain(|s| !kills(purge, s)),
        }
    }

    pub(super) fn apply_disk(
        &mut self,
        change: &Change,
        outcome: Outcome,
        acked: bool,
        journaled: bool,
        durable: bool,
    ) {
        let certain = acked && (journaled || durable);
        // Only a create settles what is there; after a crash that is open until the next one.
        self.settled = acked && (self.settled || matches!(change, Change::Create { .. }));
        match change {
            Change::Create { state, contested, .. } => {
                if certain && !*contested {
                    self.disk.clear();
                    self.loading.clear();
                }
                // A create that was refused must not turn up later.
                if outcome != Outcome::Failed {
                    add(&mut self.disk, state.clone());
                }
                self.settled &= !*contested;
                self.required = None;
                self.live = vec![state.clone()];
            }
            Change::SetMetadata { version, length, is_refreshed, .. } => {
                let renewed = with_metadata(&self.disk, *version, *length);
                self.live = with_metadata(&self.live, *version, *length);
                self.required = None;
                if outcome == Outcome::NothingThere {
                    return;
                }
                // Metadata is written like data: only a sync makes the old unacceptable.
                if acked && durable {
                    let older = std::mem::replace(&mut self.disk, renewed);
                    match is_refreshed {
                        true => older.into_iter().for_each(|s| add(&mut self.loading, s)),
                        false => self.loading.clear(),
                    }
                } else {
                    renewed.into_iter().for_each(|s| add(&mut self.disk, s));
                }
            }
            Change::Sync => {}
            purge => self.purge_disk(purge, certain),
        }
    }

    fn purge_disk(&mut self, purge: &Change, certain: bool) {
        if self.live.iter().chain(&self.required).any(|s| kills(purge, s)) {
            self.required = None;
        }
        if certain {
            self.disk.retain(|s| !kills(purge, s));
            self.loading.retain(|s| !kills(purge, s));
        }
        self.live.retain(|s| !kills(purge, s));
    }

    /// While running: after an acknowledged sync.
    pub(super) fn require_live(&mut self) {
        if self.settled && !self.miss && self.live.len() == 1 {
            self.required = self.live.first().cloned();
        }
    }

    /// In the fold over the log: `live` is the value as of this sync.
    pub(super) fn require_settled(&mut self) {
        if self.settled && self.live.len() == 1 {
            self.required = self.live.first().cloned();
            self.disk = self.live.clone();
        }
    }

    pub(super) fn explain(&self, key: &[u8], seen: &Seen<'_>) -> String {
        let old: Vec<_> = self.ever.iter().filter(|s| s.matches(key, seen)).collect();
        let bytes_of: Vec<u64> =
            self.ever.iter().filter(|s| s.bytes_match(key, seen)).map(|s| s.version).collect();
        let what = if !old.is_empty() {
            format!("STALE: it is {old:?}")
        } else if !bytes_of.is_empty() {
            format!("its bytes are version {bytes_of:?}, but its facts are not")
        } else {
            let head = seen.bytes.map(|(at, b)| (at, b.len(), b[..b.len().min(24)].to_vec()));
            format!("WRONG BYTES: {head:?}")
        };
        format!(
            "key {}: {what}; seen length {}, group {:?}, expires {:?}, metadata {:?} bytes; may be {:?}{}",
            show(key),
            seen.length,
            seen.group,
            seen.expires_unix_s,
            seen.metadata.map(<[u8]>::len),
            self.live,
            if self.live.is_empty() { " (only a miss)" } else { "" },
        )
    }
}

impl ObjectState {
    fn bytes_match(&self, key: &[u8], seen: &Seen<'_>) -> bool {
        self.length == seen.length
            && seen.bytes.is_none_or(|(offset, bytes)| {
                content::value_matches(key, self.version, self.length, offset, bytes)
            })
    }

    pub(super) fn matches(&self, key: &[u8], seen: &Seen<'_>) -> bool {
        let metadata = |bytes: &[u8]| {
            bytes == content::metadata(key, self.metadata_version, self.metadata_length)
        };
        seen.group.is_none_or(|group| group == self.group)
            && seen.expires_unix_s.is_none_or(|expires| expires == self.expires_unix_s)
            && self.length == seen.length
            && seen.metadata.is_none_or(metadata)
            && self.bytes_match(key, seen)
    }
}
