//! Creates, streams, new metadata, removes and purges: applied to the store and told to the model.

use std::sync::Arc;

use damelo::{CreateError, CreateOptions, MetadataError, PurgeError, Writer, WriterOptions};

use super::{Checked, Driver, Failure, HeldWriter};
use crate::content;
use crate::model::{Change, Demand, Event, Key, ObjectState, Outcome};
use crate::trace::Tick;
use crate::workload::{NewObject, Op, Workload};

impl Driver {
    pub(super) fn create(&mut self, version: u64, object: &NewObject) -> Checked {
        let (key, state) = (self.key(object.key), self.state(version, object));
        let value = content::value(&key, version, state.length);
        let metadata = content::metadata(&key, version, state.metadata_length);
        let options = CreateOptions { metadata: &metadata, expires_unix_s: state.expires_unix_s };
        let begin = self.ticks.now();
        let result = self.store().create_with(&key, state.group, &value, options).wait();
        self.note_create(begin, key, state, false, result.err())
    }

    fn note_create(
        &mut self,
        begin: Tick,
        key: Key,
        state: ObjectState,
        contested: bool,
        error: Option<CreateError>,
    ) -> Checked {
        let outcome = if error.is_none() { Outcome::Done } else { Outcome::Failed };
        self.record(begin, Change::Create { key, state, contested }, outcome);
        error.map_or(Ok(()), |error| self.refused(&error))
    }

    /// A create may be refused on sound disks, too.
    fn refused(&mut self, error: &CreateError) -> Checked {
        match error {
            CreateError::NotAdmitted { .. } | CreateError::TooLargeForVolumes { .. } => Ok(()),
            // On a ring of few segments parts may be overwritten before the commit.
            CreateError::Write { .. } | CreateError::Overwritten { .. }
                if self.model.demand() == Demand::Fresh =>
            {
                Ok(())
            }
            error => self.expected("create", error),
        }
    }

    fn open_writer(
        &mut self,
        key: &Key,
        state: &ObjectState,
        hint: bool,
    ) -> Result<Writer, CreateError> {
        let options = WriterOptions {
            metadata: content::metadata(key, state.metadata_version, state.metadata_length),
            expires_unix_s: state.expires_unix_s,
            length: hint.then_some(state.length),
        };
        self.store().writer(key, state.group, options)
    }

    /// Opens a writer and fills it up to `length`.
    fn filled_writer(
        &mut self,
        key: &Key,
        state: &ObjectState,
        piece: u32,
        hint: bool,
        length: u64,
    ) -> Result<Writer, CreateError> {
        let mut writer = self.open_writer(key, state, hint)?;
        let value = content::value(key, state.version, state.length);
        for chunk in value[..length as usize].chunks(piece as usize) {
            writer.write(chunk).wait()?;
        }
        Ok(writer)
    }

    pub(super) fn stream(
        &mut self,
        version: u64,
        object: &NewObject,
        piece: u32,
        hint: bool,
    ) -> Checked {
        let (key, state) = (self.key(object.key), self.state(version, object));
        let begin = self.ticks.now();
        let result = self
            .filled_writer(&key, &state, piece, hint, state.length)
            .and_then(|writer| writer.commit().wait());
        self.note_create(begin, key, state, false, result.err())
    }

    pub(super) fn abandon_writer(&mut self, version: u64, object: &NewObject) -> Checked {
        let (key, state) = (self.key(object.key), self.state(version, object));
        let begin = self.ticks.now();
        match self.filled_writer(&key, &state, 10_000, false, state.length / 2) {
            Ok(writer) => {
                drop(writer);
                Ok(())
            }
            // What it was to replace is gone.
            Err(error) => self.note_create(begin, key, state, false, Some(error)),
        }
    }

    pub(super) fn hold_writer(&mut self, version: u64, object: &NewObject) -> Checked {
        if self.held.is_some() {
            return Ok(());
        }
        let (key, state) = (self.key(object.key), self.state(version, object));
        let begin = self.ticks.now();
        let events_before = self.model.events().len();
        match self.filled_writer(&key, &state, 20_000, false, state.length) {
            Ok(writer) => {
                self.held = Some(HeldWriter { key, writer, state, events_before, begin });
                Ok(())
            }
            Err(error) => self.note_create(begin, key, state, false, Some(error)),
        }
    }

    pub(super) fn commit_held(&mut self) -> Checked {
        let Some(held) = self.held.take() else { return Ok(()) };
        let HeldWriter { key, writer, state, events_before, begin } = held;
        let touches = |event: &Event| match &event.change {
            Change::Create { key: other, .. }
            | Change::SetMetadata { key: other, .. }
            | Change::Remove { key: other } => *other == key,
            Change::PurgeGroup(group) => *group == state.group,
            Change::PurgePrefix(prefix) => key.starts_with(prefix),
            Change::PurgeAll => true,
            Change::Sync => false,
        };
        let contested = self.model.events()[events_before..].iter().any(touches);
        let result = writer.commit().wait();
        self.note_create(begin, key, state, contested, result.err())
    }

    pub(super) fn set_metadata(&mut self, version: u64, key: usize, length: u32) -> Checked {
        let key = self.key(key);
        let metadata = content::metadata(&key, version, length);
        let (begin, now_s) = (self.ticks.now(), self.now_s());
        // What may come back after a crash is the same as where it was set, but while it is loaded:
        // only a sync rules the older out.
        let is_refreshed = version % 2 == 1;
        let result = match is_refreshed {
            false => self.store().set_metadata(&key, &metadata).wait(),
            true => self.store().refresh_metadata(&key, &metadata).wait(),
        };
        let outcome = match &result {
            Ok(true) => Outcome::Done,
            Ok(false) => Outcome::NothingThere,
            Err(_) => Outcome::Failed,
        };
        if outcome == Outcome::NothingThere {
            self.miss(&key, now_s, true)?;
        }
        self.record(begin, Change::SetMetadata { key, version, length, is_refreshed }, outcome);
        match result {
            // The ring may just have moved it.
            Ok(_)
            | Err(
                MetadataError::Superseded | MetadataError::Create(CreateError::NotAdmitted { .. }),
            ) => Ok(()),
            Err(error) => self.expected("set_metadata", &error),
        }
    }

    pub(super) fn remove(&mut self, key: usize) -> Checked {
        let key = self.key(key);
        let (begin, now_s) = (self.ticks.now(), self.now_s());
        let result = self.store().remove(&key);
        if matches!(result, Ok(false)) {
            self.miss(&key, now_s, true)?;
        }
        let outcome = self.purge_outcome(&result.map(|_| ()));
        self.record(begin, Change::Remove { key: Arc::clone(&key) }, outcome?);
        if self.store().may_contain(&key) && !self.tolerant {
            // A tag collision may say yes; the object itself must be gone.
            return self.read(&key, false, true);
        }
        Ok(())
    }

    fn purge_outcome(&mut self, result: &Result<(), PurgeError>) -> Result<Outcome, Failure> {
        match result {
            Ok(()) => Ok(Outcome::Done),
            Err(error @ PurgeError::Journal(_)) => {
                self.expected("purge", error)?;
                Ok(Outcome::NotDurable)
            }
            Err(error) => {
                self.expected("purge", error)?;
                Ok(Outcome::Failed)
            }
        }
    }

    pub(super) fn purge(&mut self, op: &Op) -> Checked {
        let begin = self.ticks.now();
        let (change, result) = match op {
            Op::PurgeGroup(number) => {
                let group = Workload::group(*number);
                (Change::PurgeGroup(group), self.store().purge_group(group))
            }
            Op::PurgePrefix(rest) => {
                let prefix = Workload::prefix(*rest);
                let result = self.store().purge_prefix(&prefix);
                (Change::PurgePrefix(prefix), result)
            }
            _ => (Change::PurgeAll, self.store().purge_all()),
        };
        let outcome = self.purge_outcome(&result)?;
        self.record(begin, change, outcome);
        Ok(())
    }
}
