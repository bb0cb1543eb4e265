//! Slices of a resource in the store: aligned parts, each stored as an object, removed together.
//!
//! Invariants: every slice records the sentinel of its resource's slices, so that removing the
//! sentinel invalidates all of them; those that clients hold whole, read from disk, count with the
//! sections in what [`super::sections::WholeReads`] allows. Threads: as the vault.

use bytes::{BufMut, Bytes};
use damelo::GroupId;

use super::in_time::{Late, in_time};
use super::part_reads::{CHUNK_BYTES, READ_WHOLE_BYTES_MAX, cost_of_part};
use super::sections::held;
use super::{Epoch, FoundBody, Placement, Probed, Target, Vault};
use crate::metrics::Counters;
use crate::rules::NotStoredReason;
use crate::rules::group::Groups;
use crate::rules::parts::{Part, Slices};
use crate::vault::entry::{Entry, StoredResponse};
use crate::vault::groups::sentinel_key;
use crate::vault::insertion::Insertion;

/// A slice of a resource, and the requested range within it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stretch {
    pub(crate) slices: Slices,
    pub(crate) index: u64,
    /// Start of the range within the slice.
    start: u64,
    /// End (exclusive) of the range, at most the slice's length.
    end: u64,
    /// Whether a beginning of the range is of no use.
    is_all_needed: bool,
}

impl Stretch {
    /// The range within a slice that bytes `first` to `end` (exclusive) of the resource cover.
    pub(crate) fn of(slices: Slices, index: u64, first: u64, end: u64) -> Stretch {
        let before = slices.bounds(index).0;
        let within = |offset: u64| offset.saturating_sub(before).min(slices.slice_bytes);
        Stretch { slices, index, start: within(first), end: within(end), is_all_needed: false }
    }

    pub(crate) fn whole(slices: Slices, index: u64) -> Stretch {
        Stretch { slices, index, start: 0, end: slices.slice_bytes, is_all_needed: false }
    }

    /// The same for who cannot read on from the end of a part of it.
    pub(crate) fn all_needed(self) -> Stretch {
        Stretch { is_all_needed: true, ..self }
    }

    /// What is read of it while clients hold as much as they may.
    fn beginning(self) -> Stretch {
        if self.is_all_needed {
            return self;
        }
        let end = self.end.min((self.start / CHUNK_BYTES + 1) * CHUNK_BYTES);
        Stretch { end, ..self }
    }

    /// True if the range may be read without the rest of its slice; the slice does not stay in
    /// memory then.
    pub(crate) fn is_small(&self) -> bool {
        cost_of_part(self.start, self.end, self.slices.slice_bytes).is_some()
    }
}

/// What is known of a slice without its bytes.
pub(crate) enum KnownSlice {
    Missing,
    /// It is on disk, which was not to be read.
    OnDisk,
    Known(Box<StoredResponse>),
}

/// A stored slice, or the stretch of it that its response's part states.
pub(crate) struct Slice {
    pub(crate) response: StoredResponse,
    pub(crate) bytes: Bytes,
    pub(crate) placement: Placement,
    pub(crate) key: Vec<u8>,
    /// Its metadata as read.
    pub(crate) blob: Bytes,
    /// The part that is stored.
    pub(crate) part: Option<Part>,
}

impl Vault {
    /// Reads a slice of a resource, or at least the requested range of it, if it is stored. While
    /// clients hold as much of slices and sections as they may, perhaps only the beginning of that.
    pub(crate) async fn slice(
        &self,
        primary: &[u8],
        stretch: Stretch,
        counters: &Counters,
    ) -> Option<Slice> {
        let generation = self.slices_generation(primary).await?;
        let key = key_in(primary, stretch.slices, generation, stretch.index);
        let read = self.store.read(&key);
        let wanted = stretch.start..stretch.end;
        let whole_bytes = stretch.slices.slice_bytes;
        if !read.is_ready() && self.whole_reads.parts.suffices(&key, wanted, whole_bytes) {
            return self.part_of_slice(&key, stretch, counters).await;
        }
        // What is in memory already stays there if it is wanted, whoever holds it.
        let permit = match read.is_ready() {
            true => None,
            false => self.whole_reads.permits_for(whole_bytes),
        };
        if !read.is_ready() && permit.is_none() && whole_bytes > READ_WHOLE_BYTES_MAX {
            return self.part_of_slice(&key, stretch.beginning(), counters).await;
        }
        let Probed {
            entry: Entry::Response(response),
            body: FoundBody::Whole(bytes),
            placement,
            blob,
        } = self.probe_by(read, &key, true, counters).await?
        else {
            return None;
        };
        let (bytes, part) = (held(bytes, permit), response.part);
        Some(Slice { response, bytes, placement, key, blob, part })
    }

    async fn part_of_slice(
        &self,
        key: &[u8],
        stretch: Stretch,
        counters: &Counters,
    ) -> Option<Slice> {
        let reading = self.store.read_range(key, stretch.start..stretch.end);
        let range = match in_time(reading).await {
            Ok(Ok(range)) => range?,
            Ok(Err(_)) | Err(Late) => {
                counters.store_errors.one();
                return None;
            }
        };
        let blob = Bytes::copy_from_slice(range.metadata());
        let (entry, placement) = self.judge(key, &blob, (range.group(), false), counters).await?;
        let Entry::Response(mut response) = entry else { return None };
        let stored = response.part?;
        let start = stored.start + range.offset();
        response.part = Some(Part { start, end: start + range.len() as u64, ..stored });
        let (key, part) = (key.to_vec(), Some(stored));
        Some(Slice { response, bytes: range.into(), placement, key, blob, part })
    }

    /// True if slices of a resource were stored and not removed since; each may have been evicted.
    /// Costs no I/O.
    pub(crate) fn has_slices(&self, primary: &[u8]) -> bool {
        self.may_contain(&sentinel_key(slices_group(primary)))
    }

    /// As [`Vault::has_slices`], also of slices that nobody can read, since their volume is out of
    /// service: they would come back with it.
    pub(super) fn may_have_slices_anywhere(&self, primary: &[u8]) -> bool {
        let sentinel = sentinel_key(slices_group(primary));
        self.may_contain(&sentinel) || self.store.may_be_on_disk(&sentinel)
    }

    /// The generation of a resource's slices: a component of their keys until they are removed.
    pub(crate) async fn slices_generation(&self, primary: &[u8]) -> Option<u64> {
        self.has_slices(primary).then_some(())?;
        self.generation_of(slices_group(primary)).await.ok().flatten()
    }

    /// True if slices of a resource are stored that no purge covers: slices are for all, so that
    /// what may be for one user does not replace them.
    pub(crate) async fn has_slices_for_all(&self, primary: &[u8]) -> bool {
        self.slices_generation(primary).await.is_some()
    }

    /// False if this slice is certainly not stored. Costs no I/O.
    pub(crate) fn may_have_slice(
        &self,
        primary: &[u8],
        slices: Slices,
        generation: u64,
        index: u64,
    ) -> bool {
        self.may_contain(&key_in(primary, slices, generation, index))
    }

    /// A slice without its bytes, from disk only if `from_disk`.
    pub(crate) async fn known_slice(
        &self,
        primary: &[u8],
        slices: Slices,
        generation: u64,
        index: u64,
        from_disk: bool,
    ) -> KnownSlice {
        let key = key_in(primary, slices, generation, index);
        let looking = self.store.lookup(&key);
        if !from_disk && self.may_contain(&key) && !looking.is_ready() {
            return KnownSlice::OnDisk;
        }
        let info = in_time(looking).await.ok().and_then(Result::ok).flatten();
        match info.and_then(|info| self.standing_of(&key, info)) {
            Some((_, response)) if self.all_groups_stand(&response.groups).await => {
                KnownSlice::Known(Box::new(response))
            }
            _ => KnownSlice::Missing,
        }
    }

    /// Keys of the resource's slices that are stored, of the first `most`; a few may not be. Costs
    /// a look-up in memory each, and at most one read.
    pub(crate) async fn keys_of_slices(
        &self,
        primary: &[u8],
        slices: Slices,
        most: u64,
    ) -> Vec<Vec<u8>> {
        let Some(generation) = self.slices_generation(primary).await else { return Vec::new() };
        let keys = (0..most).map(|index| key_in(primary, slices, generation, index));
        keys.filter(|key| self.may_contain(key)).collect()
    }

    /// Begins to store a slice fetched since `epoch`.
    pub(crate) async fn begin_slice(
        &self,
        target: &Target,
        epoch: Epoch,
        slices: Slices,
        index: u64,
        mut response: StoredResponse,
        groups: &Groups,
    ) -> Result<Box<Insertion>, NotStoredReason> {
        let primary = &target.primary;
        response.groups = self.join_groups(&groups.others).await?;
        let together = self.join_group(slices_group(primary)).await?;
        response.groups.push(together);
        let encoded = response.encode().ok_or(NotStoredReason::HeadersTooLarge)?;
        let stamp = self.stamp(epoch, &response)?;
        let key = key_in(primary, slices, together.generation, index);
        let group = GroupId::of(&groups.home);
        // No length limit here: a slice is one object.
        let mut insertion = Insertion::new(key, epoch, group, response, stamp, u64::MAX);
        insertion.encoded = Some(encoded);
        Ok(insertion)
    }
}

/// Group of the sentinel that all slices of a resource record, so that they are removed together.
pub(super) fn slices_group(primary: &[u8]) -> GroupId {
    GroupId::of([b"slices\0", primary].concat())
}

/// The key of a slice, given the generation of the slices' sentinel.
fn key_in(primary: &[u8], slices: Slices, generation: u64, index: u64) -> Vec<u8> {
    let mut key = slice_key(primary, slices, index);
    key.put_u64(generation);
    key
}

/// A key that identifies a slice independently of the sentinel's generation.
pub(crate) fn slice_key(primary: &[u8], slices: Slices, index: u64) -> Vec<u8> {
    let mut key = Vec::with_capacity(primary.len() + 25);
    key.extend_from_slice(primary);
    key.push(3);
    key.put_u64(slices.slice_bytes);
    key.put_u64(index);
    key
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use damelo::{ByteSize, Config, Store};
    use http::{HeaderMap, StatusCode, Version};

    use super::*;
    use crate::rules::Policy;
    use crate::vault::tests::{vault_in, vault_on};

    const SLICES: Slices = Slices { slice_bytes: 512 << 10 };
    const COUNT: u64 = 8;

    /// A store that holds slices of a resource on disk, and has memory for as many.
    async fn on_disk(directory: &std::path::Path) -> (Vault, Target) {
        let vault = vault_in(directory);
        let target = Target {
            primary: b"http://a/".to_vec(),
            scheme: "http",
            host: "a".to_owned(),
            client_host: "a".to_owned(),
            path_and_query: "/".parse().unwrap(),
        };
        let groups = Groups { home: b"h".to_vec(), others: Vec::new() };
        for index in 0..COUNT {
            let (first, last) = SLICES.bounds(index);
            let complete_bytes = COUNT * SLICES.slice_bytes;
            let policy = Policy::default();
            let mut response = StoredResponse::new(
                StatusCode::PARTIAL_CONTENT,
                Version::HTTP_11,
                policy,
                HeaderMap::new(),
            );
            response.part = Some(Part { start: first, end: last + 1, complete_bytes });
            let epoch = vault.epoch(&target.primary);
            let begun = vault.begin_slice(&target, epoch, SLICES, index, response, &groups).await;
            let mut insertion = begun.unwrap();
            let bytes = Bytes::from(vec![7; SLICES.slice_bytes as usize]);
            vault.write(&mut insertion, &bytes, Duration::from_secs(9)).await.unwrap();
            vault.commit(&target.primary, insertion).await.unwrap();
        }
        vault.store.sync().unwrap();
        vault.store.drop_memory();
        (vault, target)
    }

    /// Nobody can read them, and a response that is stored meanwhile is newer: they must not come
    /// back with their volume.
    #[test]
    fn slices_on_a_volume_out_of_service_are_there_to_be_removed() {
        let directory = tempfile::tempdir().unwrap();
        let mut config = Config::new(directory.path().join("first"), ByteSize::new(32 << 20));
        let second = directory.path().join("second");
        config.volumes.push(config.volumes[0].clone());
        config.volumes[1].path.clone_from(&second);
        config.memory = ByteSize::new(8 << 20);
        config.page = Some(ByteSize::new(16 << 10));
        config.segment = Some(ByteSize::new(256 << 10));
        config.volume_errors_max = 1;
        let vault = vault_on(Store::open(config).unwrap());
        let primaries: Vec<Vec<u8>> =
            (0..200).map(|n| format!("http://a/{n}").into_bytes()).collect();
        for primary in &primaries {
            let sentinel = sentinel_key(slices_group(primary));
            vault.store.create(&sentinel, GroupId::new(1), &[7; 20_000]).wait().unwrap();
        }
        vault.store.sync().unwrap();
        vault.store.drop_memory();
        // Nothing of it can be read any more.
        std::fs::File::options().write(true).open(second).unwrap().set_len(0).unwrap();
        let read = |primary: &Vec<u8>| {
            let sentinel = sentinel_key(slices_group(primary));
            vault.store.read(&sentinel).wait().unwrap().is_some()
        };
        let lost = primaries.iter().filter(|primary| !read(primary)).count();
        assert!(lost > 1 && lost < 199, "{lost} of 200");
        assert!(!vault.store.info().volumes[1].in_service);
        let has = primaries.iter().filter(|primary| vault.has_slices(primary)).count();
        assert_eq!(has, 200 - lost);
        let may = |primary: &&Vec<u8>| vault.may_have_slices_anywhere(primary);
        assert_eq!(primaries.iter().find(|primary| !may(primary)), None);
        primaries.iter().for_each(|primary| vault.forget_slices(primary));
        assert_eq!(primaries.iter().find(may), None);
    }

    #[tokio::test]
    async fn clients_that_take_nothing_hold_no_more_slices_than_their_share() {
        let directory = tempfile::tempdir().unwrap();
        let (vault, target) = on_disk(directory.path()).await;
        let counters = Counters::default();
        let read = async |stretch: Stretch| {
            let slice = vault.slice(&target.primary, stretch, &counters).await.unwrap();
            vault.store.drop_memory();
            slice.bytes
        };
        let mut held = Vec::new();
        for index in 0..COUNT {
            held.push(read(Stretch::whole(SLICES, index)).await);
        }
        let whole = SLICES.slice_bytes as usize;
        let lengths: Vec<usize> = held.iter().map(Bytes::len).collect();
        assert_eq!(lengths, [[whole; 4], [64 << 10; 4]].concat(), "a quarter of memory is whole");
        let within = Stretch::of(SLICES, 7, 7 * SLICES.slice_bytes + 100_000, u64::MAX);
        let part = read(within).await;
        assert_eq!(part.len(), (128 << 10) - 100_000, "to the end of a chunk");
        assert_eq!(read(Stretch::whole(SLICES, 7).all_needed()).await.len(), whole);
        drop(held);
        assert_eq!(read(Stretch::whole(SLICES, 7)).await.len(), whole);
    }
}
