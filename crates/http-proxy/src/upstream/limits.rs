//! The time limits of one exchange: the configuration's, or those that rules have in their place.
//!
//! Plain data, no threads.

use std::sync::Arc;
use std::time::Duration;

use http::Request;

use crate::config::tables::Timeouts;
use crate::ruleset::OwnLimits;

/// Time limits of an exchange with an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimeLimits {
    pub(super) connect: Duration,
    pub(super) origin_header: Duration,
    pub(super) total: Option<Duration>,
}

impl TimeLimits {
    pub(super) fn new(timeouts: &Timeouts) -> TimeLimits {
        let Timeouts { connect, origin_header, total, .. } = *timeouts;
        TimeLimits { connect, origin_header, total }
    }

    /// Those of this request, which the rules' limits go with.
    pub(super) fn of<B>(&self, request: &Request<B>) -> TimeLimits {
        let Some(own) = request.extensions().get::<Arc<OwnLimits>>() else { return *self };
        TimeLimits {
            connect: own.connect.unwrap_or(self.connect),
            origin_header: own.origin_header.unwrap_or(self.origin_header),
            total: own.total.unwrap_or(self.total),
        }
    }

    /// An endpoint that had a request for less is not blamed if the request's deadline ends that.
    pub(super) fn fair_time(&self) -> Duration {
        let fair = self.connect.min(self.origin_header);
        self.total.map_or(fair, |total| fair.min(total / 2))
    }
}
