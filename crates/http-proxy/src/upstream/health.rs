//! Whether an origin may be asked, by the results of health checks and of requests.
//!
//! ```text
//! checks:    up ── fall failures in a row ──► down ── rise successes in a row ──► up
//! requests:  in ── failures in a row ──► ejected for a period ──► in, on probation
//! ```
//!
//! On probation the next failure ejects again at once. What is ejected because it cannot be reached
//! is out of reach until then, which matters where a site has no other origin. An origin is known
//! to be down if its checks fail and it has answered no request since, but by errors; if a site has
//! no other origins, it gets one trial request per check interval. Invariant: an origin is healthy
//! exactly if it is up and not ejected. `Health` is a plain state machine that takes the time as a
//! parameter; `check_all` is the task that runs the checks. Threads: the state is behind a lock in
//! `Endpoint`; the checks run on a thread of their own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::{HOST, USER_AGENT};
use http::{HeaderValue, Request, StatusCode};
use tokio::sync::watch;
use tokio::time::{sleep_until, timeout};

use crate::config::transport::{Ejection, HealthChecks};
use crate::metrics::Counters;
use crate::say::say;
use crate::upstream::OriginBody;
use crate::upstream::endpoint::Origin;
use crate::upstream::pool::{Pool, PoolSettings};
use crate::upstream::sites::Sites;

/// Lower limit of the configured check interval.
const INTERVAL_MIN: Duration = Duration::from_millis(10);
/// Shortest time between two reports that an origin fails requests.
const FAILURES_TOLD_EVERY: Duration = Duration::from_secs(60);

/// Health of one endpoint.
#[derive(Debug, Clone, Default)]
pub(crate) struct Health {
    down: bool,
    /// Number of consecutive check results that contradict `down`.
    contrary_checks: u32,
    failures: u32,
    ejected_until: Option<Instant>,
    /// The last request failed before there was a connection.
    unreached: bool,
    /// A request was answered since `down` last changed, by no error if it is down, and none has
    /// failed since.
    answers: bool,
    tried: Option<Instant>,
    /// The state last reported on standard error.
    told_down: bool,
    /// Failing requests were reported, and nothing good since.
    told_failing: bool,
    /// When failing requests were last reported.
    told_failures: Option<Instant>,
}

impl Health {
    pub(crate) fn is_healthy(&self, now: Instant) -> bool {
        !self.down && self.ejected_until.is_none_or(|until| until <= now)
    }

    /// Records the result of a check; true if it changed the state.
    pub(crate) fn checked(&mut self, good: bool, checks: &HealthChecks) -> bool {
        if good != self.down {
            self.contrary_checks = 0;
            return false;
        }
        self.contrary_checks += 1;
        let needed = if good { checks.rise } else { checks.fall };
        if self.contrary_checks < needed {
            return false;
        }
        self.contrary_checks = 0;
        self.down = !good;
        self.answers = false;
        if good {
            self.failures = 0;
            self.ejected_until = None;
        }
        true
    }

    /// Leaves it to requests, or to other checks, whether the origin is there.
    pub(crate) fn forget_checks(&mut self) {
        (self.down, self.contrary_checks, self.tried) = (false, 0, None);
    }

    /// Whether checks and requests agree that the origin is down.
    pub(crate) fn is_known_down(&self) -> bool {
        self.down && !self.answers
    }

    /// Whether requests have found that no connection to the origin can be opened.
    pub(crate) fn is_out_of_reach(&self, now: Instant) -> bool {
        self.unreached && self.ejected_until.is_some_and(|until| until > now)
    }

    /// Whether an origin that is known to be down may get a trial request: one per `interval`.
    pub(crate) fn may_try(&self, interval: Duration, now: Instant) -> bool {
        self.tried.is_none_or(|tried| now.saturating_duration_since(tried) >= interval)
    }

    /// Claims the trial request of this interval; false if it is already taken.
    pub(crate) fn take_try(&mut self, interval: Duration, now: Instant) -> bool {
        let may = self.may_try(interval, now);
        if may {
            self.tried = Some(now);
        }
        may
    }

    /// Notes that the origin is about to be reported as down or up; false if the last report said
    /// the same.
    pub(crate) fn is_news(&mut self, down: bool) -> bool {
        // Failing requests are no report of it being down: checks may find that, too.
        let was_down = self.told_down || (!down && self.told_failing);
        self.told_failing &= down;
        self.told_down = down;
        was_down != down
    }

    /// Notes that a request's failure is about to be reported; false if nothing good was reported
    /// since the last report, or within [`FAILURES_TOLD_EVERY`] of one, since an origin may fail
    /// every other request.
    pub(crate) fn failure_is_news(&mut self, now: Instant) -> bool {
        let since = self.told_failures.map(|told| now.saturating_duration_since(told));
        let lately = since.is_some_and(|since| since < FAILURES_TOLD_EVERY);
        if lately || self.told_down || self.told_failing {
            return false;
        }
        (self.told_failing, self.told_failures) = (true, Some(now));
        true
    }

    /// Records that a request was answered. An error of the server says nothing against checks that
    /// fail.
    pub(crate) fn answered(&mut self, status: StatusCode) {
        self.unreached = false;
        if self.down && status.is_server_error() {
            return;
        }
        self.answers = true;
        self.failures = 0;
        self.ejected_until = None;
    }

    /// Records that a request failed, with or without a connection; true if that ejects the origin.
    pub(crate) fn failed(&mut self, unreached: bool, ejection: &Ejection, now: Instant) -> bool {
        (self.answers, self.unreached) = (false, unreached);
        if ejection.failures == 0 || self.ejected_until.is_some_and(|until| until > now) {
            return false;
        }
        self.failures = self.failures.saturating_add(1);
        if self.failures < ejection.failures {
            return false;
        }
        // Not reset to zero: until a request or check succeeds, one more failure ejects again.
        self.failures = ejection.failures - 1;
        self.ejected_until = Some(now + ejection.period);
        true
    }
}

/// What checks go by at the moment; a reload may change all of it.
pub(crate) struct Checking {
    pub(crate) sites: Arc<Sites>,
    /// `None`: nothing is checked.
    pub(crate) checks: Option<HealthChecks>,
    pub(crate) settings: PoolSettings,
}

/// Checks every endpoint at intervals, for as long as it is polled. `of` says what checks go by
/// now; origins that the former checks found down do not stay so where others ask something else,
/// or none are left.
pub(crate) async fn check_all<T>(
    mut current: watch::Receiver<T>,
    of: impl Fn(&T) -> Checking,
    counters: Arc<Counters>,
) {
    let (mut former, mut due) = (None, tokio::time::Instant::now());
    loop {
        let now = of(&current.borrow_and_update());
        if now.checks != former {
            if asks_something_else(former.as_ref(), now.checks.as_ref()) {
                forget(&now.sites);
            }
            due = tokio::time::Instant::now();
            former.clone_from(&now.checks);
        }
        let Some(checks) = &now.checks else {
            match current.changed().await {
                Ok(()) => continue,
                Err(_) => return,
            }
        };
        tokio::select! {
            biased;
            // What it goes by may have changed, and sites may have gone or come.
            changed = current.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
            () = sleep_until(due) => {}
        }
        due = tokio::time::Instant::now() + checks.interval.max(INTERVAL_MIN);
        check_once(&now, checks, &counters).await;
    }
}

fn asks_something_else(former: Option<&HealthChecks>, now: Option<&HealthChecks>) -> bool {
    match (former, now) {
        (Some(former), Some(now)) => {
            (&former.path, &former.host, &former.expect) != (&now.path, &now.host, &now.expect)
        }
        (former, _) => former.is_some(),
    }
}

fn forget(sites: &Sites) {
    for (_, endpoint) in sites.endpoints() {
        endpoint.health().forget_checks();
    }
}

/// Checks run concurrently, so that one that hangs does not delay the rest.
async fn check_once(now: &Checking, checks: &HealthChecks, counters: &Counters) {
    // A check on a reused connection would not notice that new connections fail.
    let settings = PoolSettings { idle_max: 0, keep_http2: false, ..now.settings.clone() };
    let mut asking = Vec::new();
    for (origin, endpoint) in now.sites.endpoints() {
        let pool = Pool::new(endpoint.clone(), settings.clone());
        let checking = check(pool, check_request(origin, checks), checks.clone());
        asking.push((endpoint.clone(), tokio::spawn(checking)));
    }
    for (endpoint, result) in asking {
        let problem = result.await.unwrap_or_else(|_| Some("a check panicked".to_owned()));
        if problem.is_some() {
            counters.origin_checks_failed.one();
        }
        let good = problem.is_none();
        let changed = {
            let mut health = endpoint.health();
            health.checked(good, checks) && health.is_news(!good)
        };
        if changed {
            say(format_args!("damelo: {}", change(endpoint.url(), checks, problem)));
        }
    }
}

/// What the operator is told of an origin that checks took out, or back in if there is no problem.
fn change(url: &str, checks: &HealthChecks, problem: Option<String>) -> String {
    match problem {
        None => format!("the origin {url} passes its checks again"),
        Some(problem) => {
            format!("the origin {url} is down: its checks of {} fail: {problem}", checks.path)
        }
    }
}

fn check_request(origin: &Origin, checks: &HealthChecks) -> Request<OriginBody> {
    let mut request = Request::new(OriginBody::Empty);
    // Path and host were validated when the settings were read.
    *request.uri_mut() = checks.path.parse().unwrap_or_default();
    let host = checks.host.as_deref().and_then(|host| HeaderValue::try_from(host).ok());
    let host = host.unwrap_or_else(|| origin.host_header.clone());
    request.headers_mut().insert(HOST, host);
    request.headers_mut().insert(USER_AGENT, HeaderValue::from_static("damelo-health-check"));
    request
}

/// Why the origin did not pass a check; `None` if it did.
async fn check(pool: Pool, request: Request<OriginBody>, checks: HealthChecks) -> Option<String> {
    match timeout(checks.timeout, pool.send(Box::new(request), None)).await {
        Ok(Ok(response)) => problem_of(response.status(), &checks),
        Ok(Err(failed)) => Some(failed.error.to_string()),
        Err(_) => Some(format!("no answer within {:?}", checks.timeout)),
    }
}

fn problem_of(status: StatusCode, checks: &HealthChecks) -> Option<String> {
    let good = checks.expect.contains(&status.as_u16());
    (!good).then(|| format!("the answer has the status {}", status.as_u16()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_need_several_results_to_change_a_mind() {
        let checks = HealthChecks { fall: 3, rise: 2, ..HealthChecks::default() };
        let mut health = Health::default();
        let now = Instant::now();
        for (good, healthy) in [
            (false, true),
            (false, true),
            (true, true),
            (false, true),
            (false, true),
            (false, false),
            (true, false),
            (false, false),
            (true, false),
            (true, true),
        ] {
            health.checked(good, &checks);
            assert_eq!(health.is_healthy(now), healthy);
        }
    }

    /// A path that is not there looks like a dead origin else.
    #[test]
    fn who_runs_it_is_told_why_checks_fail() {
        let checks = HealthChecks { path: "/health".to_owned(), ..HealthChecks::default() };
        let told = |status| change("http://a", &checks, problem_of(status, &checks));
        let wrong = "the origin http://a is down: its checks of /health fail: the answer has the \
                     status 404";
        assert_eq!(told(StatusCode::NOT_FOUND), wrong);
        assert_eq!(told(StatusCode::FOUND), "the origin http://a passes its checks again");
    }

    #[test]
    fn what_is_down_is_tried_once_in_an_interval_until_it_answers() {
        let checks = HealthChecks { fall: 1, rise: 1, ..HealthChecks::default() };
        let (interval, start) = (Duration::from_secs(5), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut health = Health::default();
        assert!(!health.is_known_down());
        health.checked(false, &checks);
        assert!(health.is_known_down());
        assert!(health.take_try(interval, at(0)) && !health.take_try(interval, at(4)));
        assert!(!health.may_try(interval, at(4)) && health.may_try(interval, at(5)));
        assert!(health.take_try(interval, at(5)) && !health.take_try(interval, at(9)));
        health.answered(StatusCode::INTERNAL_SERVER_ERROR);
        assert!(health.is_known_down(), "its requests fail like its checks");
        // A request succeeds although the checks fail.
        health.answered(StatusCode::OK);
        assert!(!health.is_known_down());
        health.failed(true, &Ejection { failures: 0, ..Ejection::default() }, at(9));
        assert!(health.is_known_down());
        health.checked(true, &checks);
        assert!(!health.is_known_down());
    }

    #[test]
    fn failures_are_news_once_until_an_answer_and_once_in_a_while() {
        let (mut health, start) = (Health::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(health.failure_is_news(at(0)) && !health.failure_is_news(at(1000)));
        assert!(health.is_news(false) && health.failure_is_news(at(1001)));
        assert!(health.is_news(false), "it answers again");
        assert!(!health.failure_is_news(at(1060)) && !health.is_news(false), "it goes on and off");
        assert!(health.failure_is_news(at(1061)));
        assert!(health.is_news(true), "checks find it down as well");
        assert!(!health.failure_is_news(at(2000)) && health.is_news(false));
    }

    #[test]
    fn failures_eject_for_a_time_and_then_on_probation() {
        let ejection = Ejection { failures: 3, period: Duration::from_secs(10) };
        let mut health = Health::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(!health.failed(true, &ejection, at(0)) && !health.failed(true, &ejection, at(0)));
        health.answered(StatusCode::OK);
        assert!(!health.failed(true, &ejection, at(1)) && !health.failed(true, &ejection, at(1)));
        assert!(health.failed(true, &ejection, at(1)));
        assert!(!health.is_healthy(at(10)) && health.is_healthy(at(11)));
        assert!(!health.failed(true, &ejection, at(5)), "asked for want of others");
        assert!(health.failed(true, &ejection, at(12)), "on probation one is enough");
        assert!(!health.is_healthy(at(21)));
        assert!(health.is_news(true) && !health.is_news(true), "said once");
        assert!(health.is_news(false) && !health.is_news(false));
        health.answered(StatusCode::OK);
        assert!(health.is_healthy(at(21)));
    }

    #[test]
    fn what_cannot_be_reached_is_out_of_reach_for_a_time() {
        let ejection = Ejection { failures: 2, period: Duration::from_secs(10) };
        let (mut health, start) = (Health::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        health.failed(true, &ejection, at(0));
        assert!(!health.is_out_of_reach(at(0)));
        health.failed(true, &ejection, at(0));
        assert!(health.is_out_of_reach(at(9)) && !health.is_out_of_reach(at(10)));
        health.failed(false, &ejection, at(10));
        assert!(!health.is_healthy(at(11)) && !health.is_out_of_reach(at(11)), "it is there");
        health.failed(true, &ejection, at(20));
        assert!(health.is_out_of_reach(at(21)));
        health.answered(StatusCode::OK);
        assert!(!health.is_out_of_reach(at(21)));
    }
}
