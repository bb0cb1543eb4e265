//! What is refused before it takes memory: by its lengths, by the state of the store, and by the
//! admission policy, which is told here what came of it.
//!
//! Owns nothing. Invariant: each refusal is counted. Threads: any.

use std::time::Duration;

use super::NewObject;
use crate::engine::Engine;
use crate::error::CreateError;
use crate::format::{BLOCK_BYTES, KEY_BYTES_MAX};
use crate::policy::admission::Newcomer;
use crate::stats::add;
use crate::types::GroupId;

impl Engine {
    pub(super) fn check_create(&self, new: &NewObject<'_>) -> Result<(), CreateError> {
        self.check_key(new.key)?;
        self.check_metadata(new.metadata)?;
        // The caller of an abandoned create does not see this error.
        if self.is_closed() || new.is_given_up() {
            return Err(CreateError::Closed);
        }
        self.check_in_service()
    }

    /// Refuses, and counts, what no volume could take.
    pub(crate) fn check_in_service(&self) -> Result<(), CreateError> {
        if self.space.all_gone() {
            add(&self.counters.drops_write_error, 1);
            return Err(CreateError::VolumesGone { reason: self.space.why_gone() });
        }
        Ok(())
    }

    /// Counts a refused object of `length` bytes and returns the error; `max` is the limit.
    pub(crate) fn too_large(&self, length: u64, max: u64) -> CreateError {
        add(&self.counters.drops_too_large, 1);
        CreateError::TooLarge { length, max }
    }

    /// Longest value that fits in one record with a key and metadata of these lengths.
    pub(crate) fn one_record_max(&self, key: usize, metadata: usize) -> u64 {
        // Room for the header, checksums of chunks and alignment.
        let beside = (key + metadata) as u64 + BLOCK_BYTES;
        self.extent_max().saturating_sub(beside)
    }

    /// Refuses, and counts, a key that is empty or too long.
    pub(crate) fn check_key(&self, key: &[u8]) -> Result<(), CreateError> {
        let (length, max) = (key.len(), KEY_BYTES_MAX as usize);
        if (1..=max).contains(&length) {
            return Ok(());
        }
        add(&self.counters.drops_too_large, 1);
        Err(CreateError::KeyLength { length, max })
    }

    /// Refuses, and counts, metadata that is too long.
    pub(crate) fn check_metadata(&self, metadata: &[u8]) -> Result<(), CreateError> {
        let (length, max) = (metadata.len(), self.metadata_max());
        if length <= max {
            return Ok(());
        }
        add(&self.counters.drops_too_large, 1);
        Err(CreateError::MetadataTooLarge { length, max })
    }

    /// Asks the admission policy; a refusal is counted. `bytes` is `None` if the length is unknown.
    pub(crate) fn admit(
        &self,
        key: &[u8],
        group: GroupId,
        metadata: &[u8],
        bytes: Option<u64>,
    ) -> Result<(), CreateError> {
        let Some(policy) = &self.policies.admission else { return Ok(()) };
        let new = Newcomer {
            key,
            hash: self.hash(key).get(),
            group,
            hint: self.groups.hint(group),
            bytes,
            metadata,
            now: self.clock.monotonic(),
        };
        policy.admit(&new).map_err(|rule| {
            add(&self.counters.drops_not_admitted, 1);
            CreateError::NotAdmitted { rule }
        })
    }

    /// Records the latency of a create that began at `started`, if it succeeded.
    pub(crate) fn timed(
        &self,
        started: Duration,
        created: Result<(), CreateError>,
    ) -> Result<(), CreateError> {
        if created.is_ok() {
            let took = self.clock.monotonic().saturating_sub(started);
            self.counters.create_latency.record(took);
        }
        created
    }

    /// Tells the admission policy what a record has beside the value that it was asked about.
    pub(crate) fn written_with(&self, bytes: u64) {
        if let Some(policy) = &self.policies.admission {
            policy.written_with(bytes, self.clock.monotonic());
        }
    }

    /// Tells the admission policy of written bytes that it was not asked about.
    pub(crate) fn written_beside(&self, bytes: u64) {
        if let Some(policy) = self.policies.admission.as_ref().filter(|_| bytes > 0) {
            policy.written_beside(bytes, self.clock.monotonic());
        }
    }
}
