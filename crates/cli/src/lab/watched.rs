//! A wrapper that counts a design's requests, so that a long run can report its progress, rate and
//! remaining time. Does not change the design's behaviour. Threads: one.

use damelo_lab::design::{Around, Design, Outcome};
use damelo_lab::machine::Action;
use damelo_lab::{Catalogue, Request};

use crate::progress::Progress;

/// Progress is told after so many requests.
const TELL_EVERY: u64 = 1 << 10;

/// The design, and how far it is.
pub(super) struct Watched {
    design: Box<dyn Design>,
    progress: Progress,
    done: u64,
    total: u64,
}

impl Watched {
    pub(super) fn new(design: Box<dyn Design>, requests: usize) -> Watched {
        Watched { design, progress: Progress::count("requests"), done: 0, total: requests as u64 }
    }
}

impl Around for Watched {
    fn inside(&self) -> &dyn Design {
        &*self.design
    }

    fn inside_mut(&mut self) -> &mut dyn Design {
        &mut *self.design
    }

    fn request(&mut self, request: &Request, names: &Catalogue, out: &mut Vec<Action>) -> Outcome {
        self.done += 1;
        if self.done.is_multiple_of(TELL_EVERY) {
            self.progress.set(self.done, self.total);
        }
        self.design.request(request, names, out)
    }
}
