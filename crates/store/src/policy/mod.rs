//! What the store's policies decide, without the store: pure functions on counts, so that a simulator
//! can drive the code that is shipped, and an embedder put in its own
//! ([`OwnPolicies`](crate::OwnPolicies)). Not needed to use a store with the policies it has, and free to
//! change with it.
//!
//! Each file has the names of its policies, the trait that they implement, and the policies themselves.
//! Invariants: no I/O, no clock; locks only of their own tables. Threads: any.

pub(crate) mod admission;
pub(crate) mod disk;
// What happened lately to keys, and which keys are followed: for policies that learn.
pub(crate) mod notes;
pub(crate) mod reinsertion;
pub(crate) mod residency;
pub(crate) mod sample;
mod write_budget;

pub use admission::{Admission, AdmissionPolicy, Newcomer, Seen, admission_policy};
pub use disk::{Candidate, DiskPolicy, DiskPolicyKind, disk_policy};
pub use reinsertion::{Reinsertion, ReinsertionPolicy, Survivor, reinsertion_policy};
pub use residency::{
    Arrival, Fate, Hint, Leaving, QUEUES, Queue, ResidencyPolicy, ResidencyPolicyKind, Usage,
    residency_policy, residency_policy_growing,
};
pub use write_budget::WriteBudget;
