//! The store's policies, separate from the store: decisions on counts, so that a simulator runs the
//! shipped code and an embedder can supply policies of its own
//! ([`OwnPolicies`](crate::OwnPolicies)). An application that uses the built-in policies does not
//! need this module. Its interface may change with the policies.
//!
//! Each file holds the names of its policies, the trait they implement, and the policies
//! themselves. Invariants: no I/O, no clock; locks only on their own tables. Threads: any.

pub(crate) mod admission;
pub(crate) mod disk;
// Recent events by key, for policies that learn.
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
