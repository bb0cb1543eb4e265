//! A streamed read that is left open while other operations go on. Threads: the driver's.

use std::sync::Arc;

use damelo::{ReadError, Reader};

use super::ended::ended;
use super::{Checked, Driver};
use crate::content::value_matches;
use crate::model::{Demand, Key, ObjectState, show};

/// Readers held at once.
const READERS_MAX: usize = 4;

/// Invariant: whatever happens to its key, a reader gives the bytes of the object that it was
/// opened for, or an error.
pub(super) struct HeldReader {
    key: Key,
    reader: Reader,
    state: ObjectState,
    offset: u64,
}

impl Driver {
    /// Keeps a reader of an object whose value is known for sure.
    pub(super) fn hold_reader(&mut self, key: &Key, mut reader: Reader, offset: u64) {
        let exact = self.model.demand() != Demand::Genuine;
        let Some(state) = self.model.current(key).filter(|_| exact).cloned() else { return };
        if self.readers.len() == READERS_MAX {
            self.readers.remove(0);
        }
        reader.seek(offset);
        self.readers.push(HeldReader { key: Arc::clone(key), reader, state, offset });
    }

    /// Reads a piece with each held reader.
    pub(super) fn go_on_reading(&mut self) -> Checked {
        for mut held in std::mem::take(&mut self.readers) {
            match ended!(self, held.reader.next()) {
                Ok(Some(piece)) => {
                    held.check(&piece)?;
                    held.offset += piece.len() as u64;
                    self.readers.push(held);
                }
                Ok(None) if held.offset == held.state.length => {}
                Ok(None) => {
                    let (key, at, of) = (show(&held.key), held.offset, held.state.length);
                    return Err(format!("a held reader of {key} ended at {at} of {of}"));
                }
                // The ring took it, or a fault.
                Err(ReadError::Gone) => {}
                Err(error) => self.expected("held reader", &error)?,
            }
        }
        Ok(())
    }
}

impl HeldReader {
    fn check(&self, piece: &[u8]) -> Checked {
        let HeldReader { key, state, offset, .. } = self;
        let (version, length) = (state.version, state.length);
        if piece.is_empty() || !value_matches(key, version, length, *offset, piece) {
            let (key, bytes) = (show(key), piece.len());
            return Err(format!("a held reader of {key} gave {bytes} other bytes at {offset}"));
        }
        Ok(())
    }
}
