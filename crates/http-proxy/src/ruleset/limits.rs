//! Limits that rules set for the requests that they match, in place of the configuration's.
//!
//! Plain data, no threads.

use std::sync::Arc;
use std::time::Duration;

/// What rules say of the limits of a request; `None`: as configured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OwnLimits {
    pub(crate) connect: Option<Duration>,
    pub(crate) origin_header: Option<Duration>,
    pub(crate) body_idle: Option<Duration>,
    /// `Some(None)`: any time.
    pub(crate) total: Option<Option<Duration>>,
    /// `Some(None)`: any length.
    pub(crate) upload_bytes_max: Option<Option<u64>>,
}

impl OwnLimits {
    /// These, and of the `earlier` ones those that these say nothing of.
    fn over(&self, earlier: &OwnLimits) -> OwnLimits {
        OwnLimits {
            connect: self.connect.or(earlier.connect),
            origin_header: self.origin_header.or(earlier.origin_header),
            body_idle: self.body_idle.or(earlier.body_idle),
            total: self.total.or(earlier.total),
            upload_bytes_max: self.upload_bytes_max.or(earlier.upload_bytes_max),
        }
    }

    /// Adds those of a later rule. Copies only where two rules have some.
    pub(super) fn add(so_far: &mut Option<Arc<OwnLimits>>, later: Option<&Arc<OwnLimits>>) {
        let Some(later) = later else { return };
        *so_far = Some(match so_far {
            Some(earlier) => Arc::new(later.over(earlier)),
            None => later.clone(),
        });
    }

    /// The name of the first key that is said.
    pub(super) fn first_key(&self) -> Option<&'static str> {
        let said = [
            ("timeout_connect", self.connect.is_some()),
            ("timeout_origin_header", self.origin_header.is_some()),
            ("timeout_body_idle", self.body_idle.is_some()),
            ("timeout_total", self.total.is_some()),
            ("upload_bytes_max", self.upload_bytes_max.is_some()),
        ];
        said.iter().find(|(_, said)| *said).map(|(name, _)| *name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_rules_the_later_one_counts_for_what_both_say() {
        let seconds = |number| Some(Duration::from_secs(number));
        let first =
            OwnLimits { connect: seconds(1), total: Some(seconds(9)), ..Default::default() };
        let then = OwnLimits { connect: seconds(2), total: Some(None), ..Default::default() };
        let mut all = None;
        OwnLimits::add(&mut all, Some(&Arc::new(first)));
        OwnLimits::add(&mut all, None);
        OwnLimits::add(&mut all, Some(&Arc::new(then)));
        let body = OwnLimits { body_idle: seconds(3), ..Default::default() };
        OwnLimits::add(&mut all, Some(&Arc::new(body)));
        let all = all.expect("three rules said something");
        assert_eq!((all.connect, all.total, all.body_idle), (seconds(2), Some(None), seconds(3)));
        assert_eq!(all.origin_header, None);
    }
}
