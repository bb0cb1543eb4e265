//! What may be trusted only together with a checkpoint that is complete.
//!
//! Most of what happens to a key is in the journal, so that an older checkpoint and the journal
//! tell as much as the newest. Not so of keys of which the index lost what is on disk: of those
//! nothing is written any more once a checkpoint is complete. Threads: the writer of checkpoints.

use std::io;
use std::sync::atomic::Ordering;

use super::{Journal, MARK_BYTES, full};
use crate::config::Durability;
use crate::format::{JournalOp, JournalRecord};
use crate::sync::lock;
use crate::types::Sequence;

impl Journal {
    /// Says that objects older than `seq`, or than any number in the journal, may be trusted only
    /// with a checkpoint of at least this generation. On disk when this returns, whatever the
    /// configured durability but `None`. Never waits for a checkpoint: without room it is an error.
    pub(crate) fn require(&self, generation: u64, seq: Sequence) -> io::Result<()> {
        let Some(area) = self.area.as_ref().filter(|_| self.durability != Durability::None) else {
            return Ok(());
        };
        let mut state = lock(&self.state);
        if self.lacks(&state, MARK_BYTES) {
            if !self.may_turn(&state) {
                self.wants_checkpoint.store(true, Ordering::Relaxed);
                return Err(full());
            }
            state = self.turn(state, area.as_ref(), seq, MARK_BYTES)?;
        }
        // The greatest number: damage before this record is judged by the numbers behind it.
        let seq = state.newest_seq.max(seq.get());
        let op = JournalOp::Epoch { generation };
        let record = JournalRecord { op, epoch: state.epoch, seq };
        self.write(&mut state, area.as_ref(), &record)?;
        state.ends_with_mark = false;
        drop(state);
        self.sync()
    }
}
