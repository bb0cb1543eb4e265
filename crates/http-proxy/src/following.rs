//! Waiting for another request that asks for the same, and reading along with it.
//!
//! Invariant: nobody waits longer than `collapse_wait` for the next that is known of a leader.
//! Threads: as `serve`.

use std::sync::Arc;

use http::Method;
use tokio::time::timeout;

use crate::along::Along;
use crate::ask::Ask;
use crate::collapse::{self, News, Outcome};
use crate::heads;
use crate::serve::{Answer, serve_hit};
use crate::worker::Worker;

/// What came of waiting for a leader.
pub(crate) enum Following {
    /// The answer comes as the leader's does.
    Along(Box<Answer>),
    /// It comes so late to the range that is wanted that a slice is sooner there.
    Far,
    Ended(Outcome),
    TooSlow,
}

/// Waits for a leader, and reads along if its answer is one for this request, too.
pub(crate) async fn follow(worker: &Worker, ask: &Ask, leader: &News) -> Following {
    let wait = worker.shared.config.collapse_wait;
    let _waiting = worker.shared.collapse.wait();
    match timeout(wait, collapse::news(leader)).await {
        Err(_) => return Following::TooSlow,
        Ok(Outcome::Filling(along)) => {
            if worker.shared.config.rules.slice_bytes > 0 && along.is_far(ask) {
                return Following::Far;
            }
            if let Some(answer) = read_along(worker, ask, &along) {
                return Following::Along(Box::new(answer));
            }
            if ask.method == Method::HEAD {
                // Its headers are soon there; the body of another variant may take long.
                return Following::TooSlow;
            }
        }
        Ok(Outcome::Head(subject)) => {
            return match heads::shared(worker, ask, &subject) {
                Some(answer) => Following::Along(Box::new(answer)),
                // Those of another variant: one who wants this one leads next.
                None => Following::Ended(Outcome::Abandoned),
            };
        }
        Ok(outcome) => return Following::Ended(outcome),
    }
    match timeout(wait, collapse::outcome(leader)).await {
        Ok(outcome) => Following::Ended(outcome),
        Err(_) => Following::TooSlow,
    }
}

fn read_along(worker: &Worker, ask: &Ask, along: &Arc<Along>) -> Option<Answer> {
    let shared = &worker.shared;
    if !along.is_for(ask, &shared.vault, &shared.config.rules, worker.now_s()) {
        return None;
    }
    let found = along.found(&shared.vault)?;
    worker.counters.read_along.one();
    Some(serve_hit(worker, ask, found, true))
}
