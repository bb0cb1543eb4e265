//! One response on its way into the store.
//!
//! Invariants: nothing is visible before [`Insertion::commit`]; a body stored apart is written
//! before the entry that refers to it. Small bodies are buffered until complete, larger ones are
//! streamed. Threads: belongs to the fill that writes it.

use std::time::Duration;

use bytes::Bytes;
use damelo::{CreateOptions, GroupId, Store, Writer, WriterOptions};
use http::StatusCode;

use crate::io::pieces::join_small;
use crate::purge::stamp::Stamp;
use crate::rules::NotStoredReason;
use crate::rules::parts::{self, Part};
use crate::vault::entry::{Apart, StoredResponse};
use crate::vault::sections::{self, SECTION_BYTES, section_key};
use crate::vault::{Epoch, Placement};

/// A response on its way into the store. Boxed, because it is large and passed on at every step.
pub(crate) struct Insertion {
    pub(crate) key: Vec<u8>,
    pub(crate) epoch: Epoch,
    pub(crate) group: GroupId,
    pub(crate) response: StoredResponse,
    /// The encoded response, unless the body changes it.
    pub(crate) encoded: Option<Vec<u8>>,
    /// The stamp that purges will be checked against.
    stamp: Stamp,
    whole_body_bytes_max: u64,
    expected_bytes: Option<u64>,
    /// A stored part to be joined with this one.
    older: Option<(Part, Bytes)>,
    body: InsertionBody,
}

/// The body received so far.
enum InsertionBody {
    /// Still small enough to be stored beside its metadata.
    Small { chunks: Vec<Bytes>, length_bytes: u64 },
    /// Written apart: all sections but the writer's are in the store. There is no writer between a
    /// full section and the next byte.
    Large { writer: Option<Box<Writer>>, apart: Apart, announced_bytes: Option<u64> },
}

impl Insertion {
    /// An insertion without any body bytes yet.
    pub(crate) fn new(
        key: Vec<u8>,
        epoch: Epoch,
        group: GroupId,
        response: StoredResponse,
        stamp: Stamp,
        whole_body_bytes_max: u64,
    ) -> Box<Insertion> {
        let body = InsertionBody::Small { chunks: Vec::new(), length_bytes: 0 };
        Box::new(Insertion {
            key,
            epoch,
            group,
            response,
            encoded: None,
            stamp,
            whole_body_bytes_max,
            older: None,
            expected_bytes: None,
            body,
        })
    }

    /// All groups that the response will be in.
    pub(crate) fn groups(&self) -> Vec<GroupId> {
        self.response.groups_with(self.group).collect()
    }

    /// Its placement once it is stored.
    pub(crate) fn placement(&self) -> Placement {
        Placement { group: self.group, in_memory: true, stamp: self.stamp.clone() }
    }

    /// Prepares for a body of this length, if the length is known.
    pub(crate) fn announce(
        &mut self,
        store: &Store,
        length_bytes: Option<u64>,
    ) -> Result<(), NotStoredReason> {
        if length_bytes.is_some_and(|length| length > self.whole_body_bytes_max) {
            self.body = self.begin_large(store, length_bytes)?;
        }
        Ok(())
    }

    /// Adds bytes of the body, waiting at most `limit` for room.
    pub(crate) async fn write(
        &mut self,
        store: &Store,
        bytes: &Bytes,
        limit: Duration,
    ) -> Result<(), NotStoredReason> {
        if let InsertionBody::Small { chunks, length_bytes } = &mut self.body {
            if !chunks.last_mut().is_some_and(|last| join_small(last, bytes)) {
                chunks.push(bytes.clone());
            }
            *length_bytes += bytes.len() as u64;
            if *length_bytes <= self.whole_body_bytes_max {
                return Ok(());
            }
            let chunks = std::mem::take(chunks);
            self.body = self.begin_large(store, None)?;
            for chunk in &chunks {
                self.write_large(store, chunk, limit).await?;
            }
            return Ok(());
        }
        self.write_large(store, bytes, limit).await
    }

    /// Makes the commit fail if the body's length differs from the one its headers announced.
    pub(crate) fn expect(&mut self, length_bytes: Option<u64>) {
        self.expected_bytes = length_bytes;
    }

    /// Joins this part with an older one of the same representation.
    pub(crate) fn join_with(&mut self, older: Part, bytes: Bytes) {
        self.older = Some((older, bytes));
    }

    fn begin_large(
        &self,
        store: &Store,
        length: Option<u64>,
    ) -> Result<InsertionBody, NotStoredReason> {
        let apart = Apart { generation: fastrand::u64(..), length_bytes: 0 };
        // Each section is an object; `FillLimits` checked earlier that all of them fit.
        let first = length.map(|length| length.min(SECTION_BYTES));
        let writer = Some(self.section_writer(store, apart, first)?);
        Ok(InsertionBody::Large { writer, apart, announced_bytes: length })
    }

    /// Opens a writer for the section at the current offset.
    fn section_writer(
        &self,
        store: &Store,
        apart: Apart,
        length: Option<u64>,
    ) -> Result<Box<Writer>, NotStoredReason> {
        let section = apart.length_bytes / SECTION_BYTES;
        let key = section_key(&self.key, apart.generation, section);
        let options = WriterOptions { metadata: Vec::new(), expires_unix_s: None, length };
        let writer = store.writer(&key, self.group, options);
        writer.map(Box::new).map_err(|_| NotStoredReason::Store)
    }

    async fn write_large(
        &mut self,
        store: &Store,
        mut bytes: &[u8],
        limit: Duration,
    ) -> Result<(), NotStoredReason> {
        while !bytes.is_empty() {
            self.begin_section(store)?;
            let InsertionBody::Large { writer: Some(writer), apart, .. } = &mut self.body else {
                return Ok(());
            };
            let room = SECTION_BYTES - writer.written_bytes();
            let take = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
            let (now, later) = bytes.split_at(take);
            apart.length_bytes += take as u64;
            match tokio::time::timeout(limit, writer.write(now)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return Err(NotStoredReason::Store),
            }
            bytes = later;
            if writer.written_bytes() == SECTION_BYTES {
                self.end_section().await?;
            }
        }
        Ok(())
    }

    /// Opens a writer if the section before is full.
    fn begin_section(&mut self, store: &Store) -> Result<(), NotStoredReason> {
        let InsertionBody::Large { writer: None, apart, announced_bytes } = &self.body else {
            return Ok(());
        };
        let left_bytes = announced_bytes.map(|all| all.saturating_sub(apart.length_bytes));
        let length = left_bytes.map_or(SECTION_BYTES, |left| left.min(SECTION_BYTES));
        let opened = self.section_writer(store, *apart, Some(length))?;
        if let InsertionBody::Large { writer, .. } = &mut self.body {
            *writer = Some(opened);
        }
        Ok(())
    }

    /// Commits the full section at once, since who follows the fill may want to read it.
    async fn end_section(&mut self) -> Result<(), NotStoredReason> {
        let InsertionBody::Large { writer, .. } = &mut self.body else { return Ok(()) };
        let Some(full) = writer.take() else { return Ok(()) };
        full.commit().await.map_err(|_| NotStoredReason::Store)
    }

    /// The body as far as it is written apart.
    pub(crate) fn apart(&self) -> Option<&Apart> {
        match &self.body {
            InsertionBody::Large { apart, .. } => Some(apart),
            InsertionBody::Small { .. } => None,
        }
    }

    /// Generation of the body stored apart, and how many of its bytes can be read.
    pub(crate) fn readable(&self) -> Option<(u64, u64)> {
        let InsertionBody::Large { writer, apart, .. } = &self.body else { return None };
        let unfinished = writer.as_ref().map_or(0, |writer| writer.written_bytes());
        Some((apart.generation, apart.length_bytes - unfinished))
    }

    /// Abandons the insertion and removes its sections from the store.
    pub(crate) fn discard(self, store: &Store) {
        if let Some((generation, stored_bytes)) = self.readable() {
            sections::forget(store, &self.key, generation, stored_bytes / SECTION_BYTES);
        }
    }

    /// Commits, and returns the key. A body stored apart is committed first, so that no entry
    /// refers to a missing body.
    pub(crate) async fn commit(
        mut self: Box<Self>,
        store: &Store,
    ) -> Result<Vec<u8>, NotStoredReason> {
        let failed = |_| NotStoredReason::Store;
        let length_bytes = match &self.body {
            InsertionBody::Small { length_bytes, .. } => *length_bytes,
            InsertionBody::Large { apart, .. } => apart.length_bytes,
        };
        if self.expected_bytes.is_some_and(|expected| expected != length_bytes) {
            return Err(NotStoredReason::Partial);
        }
        let encoded = self.encoded.take_if(|_| self.older.is_none());
        let (chunks, encoded) = match self.body {
            InsertionBody::Large { writer, apart, .. } => {
                if let Some(last) = writer.filter(|writer| writer.written_bytes() > 0) {
                    last.commit().await.map_err(failed)?;
                }
                self.response.apart = Some(apart);
                (Vec::new(), None)
            }
            InsertionBody::Small { chunks, .. } => match self.older {
                Some(older) => (vec![self.response.joined(chunks.concat().into(), older)], encoded),
                None => (chunks, encoded),
            },
        };
        let encoded = encoded.or_else(|| self.response.encode());
        let mut metadata = encoded.ok_or(NotStoredReason::HeadersTooLarge)?;
        self.stamp.append(&mut metadata);
        let options = CreateOptions { metadata: &metadata, ..CreateOptions::default() };
        store.create_bytes(&self.key, self.group, &chunks, options).await.map_err(failed)?;
        Ok(self.key)
    }
}

impl StoredResponse {
    /// Joins the bytes of a part with those of an older part; the result may be the complete body.
    fn joined(&mut self, bytes: Bytes, (older, older_bytes): (Part, Bytes)) -> Bytes {
        let Some(part) = self.part else { return bytes };
        let all = parts::joined_bytes((&older, &older_bytes), (&part, &bytes));
        let (Some(all), Some(joined)) = (all, older.joined(&part)) else { return bytes };
        self.part = (!joined.is_whole()).then_some(joined);
        if self.part.is_none() {
            self.status = StatusCode::OK;
        }
        all.into()
    }
}
