//! Designs around other designs: what one of them does not do itself the design inside does.
//!
//! Owns nothing. Invariant: whoever wraps a design and says nothing of a method leaves it as it
//! was; a method that [`Design`] gets later has its line here, and nowhere else. Threads: those of
//! the design.

use super::{Design, Outcome};
use crate::machine::Action;
use crate::request::{Catalogue, Request};

/// A design that has another one inside; it is a [`Design`] by that alone.
pub trait Around {
    /// The design inside.
    fn inside(&self) -> &dyn Design;

    /// The same, to be changed.
    fn inside_mut(&mut self) -> &mut dyn Design;

    /// See [`Design::request`].
    fn request(&mut self, request: &Request, names: &Catalogue, out: &mut Vec<Action>) -> Outcome {
        self.inside_mut().request(request, names, out)
    }

    /// See [`Design::counting_begins`].
    fn counting_begins(&mut self) {
        self.inside_mut().counting_begins();
    }

    /// See [`Design::facts`].
    fn facts(&self) -> Vec<(&'static str, u64)> {
        self.inside().facts()
    }
}

impl<T: Around> Design for T {
    fn prepare(&mut self, out: &mut Vec<Action>) {
        self.inside_mut().prepare(out);
    }

    fn request(&mut self, request: &Request, names: &Catalogue, out: &mut Vec<Action>) -> Outcome {
        Around::request(self, request, names, out)
    }

    fn love(&mut self, group: u64) {
        self.inside_mut().love(group);
    }

    fn hate(&mut self, group: u64) {
        self.inside_mut().hate(group);
    }

    fn own_group(&self, group: u64) -> u64 {
        self.inside().own_group(group)
    }

    fn counting_begins(&mut self) {
        Around::counting_begins(self);
    }

    fn finish(&mut self, out: &mut Vec<Action>) {
        self.inside_mut().finish(out);
    }

    fn facts(&self) -> Vec<(&'static str, u64)> {
        Around::facts(self)
    }
}
