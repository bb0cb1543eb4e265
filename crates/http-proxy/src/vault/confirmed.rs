//! What origins have lately confirmed of resources that lie in slices: one 304 counts for all
//! slices of its version.
//!
//! Invariant: bounded memory; after a collision the origin is merely asked again. Threads: any.

use std::sync::{Arc, Mutex};

use http::HeaderMap;

use super::{Epoch, Vault};
use crate::io::locks::lock;
use crate::rules::parts;
use crate::vault::entry::StoredResponse;

/// Resources remembered, one in each slot.
const SLOTS: usize = 256;

/// A response of which a slice was confirmed.
#[derive(Debug)]
pub(crate) struct Confirmed {
    primary: Box<[u8]>,
    /// When the origin was asked.
    pub(crate) epoch: Epoch,
    /// The slice as it is since.
    pub(crate) response: StoredResponse,
}

/// The responses.
#[derive(Debug)]
pub(super) struct Confirmations(Box<[Mutex<Option<Arc<Confirmed>>>]>);

impl Confirmations {
    pub(super) fn new() -> Confirmations {
        Confirmations((0..SLOTS).map(|_| Mutex::default()).collect())
    }

    fn slot(&self, resource: u64) -> &Mutex<Option<Arc<Confirmed>>> {
        &self.0[resource as usize % SLOTS]
    }
}

impl Vault {
    /// Remembers that the origin, asked in `epoch`, has confirmed a slice, which is this since;
    /// nothing in place of what was confirmed later.
    pub(crate) fn note_confirmed(&self, primary: &[u8], epoch: Epoch, response: StoredResponse) {
        let came_ms = response.policy.response_time_ms;
        let is_later = |one: &Arc<Confirmed>| {
            *one.primary == *primary && one.response.policy.response_time_ms > came_ms
        };
        let mut slot = lock(self.confirmations.slot(epoch.resource));
        if !slot.as_ref().is_some_and(is_later) {
            *slot = Some(Arc::new(Confirmed { primary: primary.into(), epoch, response }));
        }
    }

    /// Forgets what was confirmed of a resource's slices, if that is of another version than what
    /// the origin has sent now.
    pub(crate) fn forget_confirmed_but(&self, primary: &[u8], came: &HeaderMap) {
        let is_other = |one: &mut Arc<Confirmed>| {
            let Confirmed { primary: of, response, .. } = &**one;
            let came_s = response.policy.response_time_s();
            **of == *primary && !parts::may_combine(&response.headers, came, came_s)
        };
        let slot = self.confirmations.slot(self.epoch(primary).resource);
        lock(slot).take_if(is_other);
    }

    /// What was last confirmed of a resource's slices.
    pub(crate) fn confirmed(&self, primary: &[u8]) -> Option<Arc<Confirmed>> {
        let slot = self.confirmations.slot(self.epoch(primary).resource);
        lock(slot).as_ref().filter(|confirmed| *confirmed.primary == *primary).cloned()
    }
}
