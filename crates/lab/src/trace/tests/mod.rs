//! Tests of traces as a whole: what is broken in one, and what an unlimited cache hits of it.

mod malformed;
mod unlimited;
