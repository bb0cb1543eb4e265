//! Whether what is not stored yet may be stored for a request: a rule may refuse the first one.
//!
//! Invariant: a client's request counts once, however often the origin is asked for its answer, as
//! where a slice of it is of no use. No threads.

use std::sync::OnceLock;

use crate::request::Ask;
use crate::rules::NotStoredReason;
use crate::ruleset::{Admission, ResponseEffects};
use crate::worker::Shared;

/// What was found of a request, once a rule has asked whether it is the first.
#[derive(Debug, Clone, Default)]
pub(super) struct FirstOrNot(OnceLock<Result<(), NotStoredReason>>);

impl Ask {
    /// Whether a response not stored yet may be, as far as rules about first requests go.
    pub(crate) fn admit_new(
        &self,
        shared: &Shared,
        effects: &ResponseEffects<'_>,
    ) -> Result<(), NotStoredReason> {
        if effects.admission != Some(Admission::SecondHit) {
            return Ok(());
        }
        *self.first_or_not.0.get_or_init(|| effects.admit_new(shared, self))
    }

    /// Whether rules refuse it as the first, whatever the response is: then nothing needs to be
    /// asked for that only the store has a use for.
    pub(crate) fn is_refused_as_first(&self, shared: &Shared) -> bool {
        let mut effects = ResponseEffects::default();
        effects.admission = shared.config.ruleset.admission_of_any(&self.view());
        self.admit_new(shared, &effects).is_err()
    }
}
