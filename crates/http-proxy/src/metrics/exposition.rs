//! The list of the proxy's metrics with their values at one moment, and its text form for
//! `/metrics`.
//!
//! Invariant: each family has one head, its samples follow, and those of counters end in `_total`
//! (OpenMetrics 1.0). Threads: the admin listener's.

use std::fmt::Write as _;
use std::sync::Arc;

use super::histogram::Snapshot;
use super::process::Process;
use super::{BodySource, BrokenBy, CLASSES, COUNTERS, Counters, VERSIONS, latencies};
use crate::error::FetchError;
use crate::rules::NotStoredReason;

/// Type of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
    Info,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Info => "info",
        }
    }

    /// Suffix of sample names behind the family's name.
    fn suffix(self) -> &'static str {
        match self {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Histogram => "",
        }
    }
}

/// A metric, with a sample for each value of its label.
#[derive(Debug)]
pub(crate) struct Family {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) help: &'static str,
    /// Empty for a single sample without a label.
    pub(crate) label: &'static str,
    pub(crate) samples: Vec<(String, Sample)>,
}

/// Value of a sample.
#[derive(Debug)]
pub(crate) enum Sample {
    Count(u64),
    Number(f64),
    Times(Box<Snapshot>),
}

/// Values at one moment that are not workers' counters.
#[derive(Debug, Default)]
pub(crate) struct Moment {
    pub(crate) log_write_errors: u64,
    pub(crate) names_refused: u64,
    pub(crate) reloads: u64,
    pub(crate) reload_errors: u64,
    pub(crate) reload_failed: bool,
    pub(crate) restart_pending: u64,
    pub(crate) purge_marks: u64,
    pub(crate) collapsed_waiting: u64,
    pub(crate) connections_open: u64,
    pub(crate) connections_max: u64,
    pub(crate) transit_bytes: u64,
    /// Each origin once.
    pub(crate) origins: Vec<OriginState>,
    /// Names of certificates, and when they end, in seconds since 1970.
    pub(crate) certificate_ends: Vec<(String, u64)>,
    pub(crate) process: Option<Process>,
}

/// State of an origin.
#[derive(Debug)]
pub(crate) struct OriginState {
    /// Its URL as configured.
    pub(crate) url: String,
    /// If it serves several sites: whether all of them consider it healthy.
    pub(crate) is_healthy: bool,
    pub(crate) requests_open: u64,
}

/// All families, in the document's order.
pub(crate) fn families(workers: &[Arc<Counters>], moment: &Moment) -> Vec<Family> {
    let mut families = counters(workers);
    families.extend(singles(workers, moment));
    families.extend(labelled(workers));
    families.extend(origins(&moment.origins));
    families.push(certificates(&moment.certificate_ends));
    families.push(latency(workers));
    families.push(Family {
        name: "damelo_build".to_owned(),
        kind: Kind::Info,
        help: "What is running: the value is always 1.",
        label: "version",
        samples: vec![(env!("CARGO_PKG_VERSION").to_owned(), Sample::Count(1))],
    });
    families.extend(moment.process.iter().flat_map(process));
    families
}

fn of_proxy(
    name: &str,
    kind: Kind,
    help: &'static str,
    label: &'static str,
    samples: Vec<(String, Sample)>,
) -> Family {
    Family { name: format!("damelo_proxy_{name}"), kind, help, label, samples }
}

fn single(name: &str, kind: Kind, help: &'static str, value: u64) -> Family {
    of_proxy(name, kind, help, "", vec![(String::new(), Sample::Count(value))])
}

fn sum(workers: &[Arc<Counters>], read: impl Fn(&Counters) -> u64) -> u64 {
    workers.iter().map(|counters| read(counters)).sum()
}

fn counters(workers: &[Arc<Counters>]) -> Vec<Family> {
    let family = |(name, help, read): &(&str, &'static str, fn(&Counters) -> &super::Counter)| {
        single(name, Kind::Counter, help, sum(workers, |counters| read(counters).get()))
    };
    COUNTERS.iter().map(family).collect()
}

fn singles(workers: &[Arc<Counters>], moment: &Moment) -> Vec<Family> {
    let counter = |name, help, value| single(name, Kind::Counter, help, value);
    let gauge = |name, help, value| single(name, Kind::Gauge, help, value);
    vec![
        counter(
            "log_write_errors",
            "Access log lines that could not be written.",
            moment.log_write_errors,
        ),
        counter(
            "names_refused",
            "Names of origins that were not looked up because too many others were.",
            moment.names_refused,
        ),
        counter("reloads", "Times that the settings were read again.", moment.reloads),
        counter(
            "reload_errors",
            "Times that they could not be used; the former stayed.",
            moment.reload_errors,
        ),
        gauge(
            "reload_failed",
            "1 if the last attempt to read the settings again failed.",
            u64::from(moment.reload_failed),
        ),
        gauge(
            "restart_pending",
            "Settings that were read again and take effect only at the next start.",
            moment.restart_pending,
        ),
        gauge("connections_open", "Connections of clients now.", moment.connections_open),
        gauge("connections_max", "The most there may be at once.", moment.connections_max),
        gauge(
            "requests_open",
            "Requests now between their headers and the last byte of their answer, and tunnels.",
            sum(workers, |counters| counters.under_way.get()),
        ),
        gauge(
            "transit_bytes",
            "Bytes of bodies from origins in memory, on their way to clients and into the store.",
            moment.transit_bytes,
        ),
        gauge(
            "purge_marks",
            "Purge marks kept as they were set; older ones are kept coarser.",
            moment.purge_marks,
        ),
        gauge(
            "collapsed_waiting",
            "Requests that wait now for another one to fetch the same resource.",
            moment.collapsed_waiting,
        ),
    ]
}

fn labelled(workers: &[Arc<Counters>]) -> Vec<Family> {
    let count = |read: &dyn Fn(&Counters) -> u64| Sample::Count(sum(workers, read));
    let reasons = NotStoredReason::ALL.iter().enumerate().map(|(index, reason)| {
        (reason.name().to_owned(), count(&|counters| counters.not_stored[index].get()))
    });
    let classes = CLASSES.iter().enumerate().map(|(index, class)| {
        ((*class).to_owned(), count(&|counters| counters.responses[index].get()))
    });
    let sources = BodySource::ALL.iter().map(|(source, name)| {
        let read = |counters: &Counters| counters.client_body_bytes[*source as usize].get();
        ((*name).to_owned(), count(&read))
    });
    let breaks = BrokenBy::ALL.iter().map(|(by, name)| {
        ((*name).to_owned(), count(&|counters| counters.broken[*by as usize].get()))
    });
    let errors = FetchError::NAMES.iter().enumerate().map(|(index, name)| {
        ((*name).to_owned(), count(&|counters| counters.origin_errors[index].get()))
    });
    let versions = VERSIONS.iter().enumerate().map(|(index, version)| {
        ((*version).to_owned(), count(&|counters| counters.versions[index].get()))
    });
    vec![
        of_proxy(
            "requests_by_version",
            Kind::Counter,
            "Requests received, by the version of HTTP.",
            "version",
            versions.collect(),
        ),
        of_proxy(
            "origin_errors",
            Kind::Counter,
            "Requests to the origin that brought no response, by reason.",
            "reason",
            errors.collect(),
        ),
        of_proxy(
            "not_stored",
            Kind::Counter,
            "Responses not stored, by reason.",
            "reason",
            reasons.collect(),
        ),
        of_proxy(
            "responses",
            Kind::Counter,
            "Answers to clients, by class of their status.",
            "class",
            classes.collect(),
        ),
        of_proxy(
            "client_body_bytes",
            Kind::Counter,
            "Bytes of bodies sent to clients: from the store without asking an origin, with an origin asked, or made by the proxy itself.",
            "from",
            sources.collect(),
        ),
        of_proxy(
            "answers_broken",
            Kind::Counter,
            "Answers that their clients did not get to the end, by who or what ended them; clients that went before their answers included.",
            "by",
            breaks.collect(),
        ),
    ]
}

fn origins(origins: &[OriginState]) -> [Family; 2] {
    let samples = |read: fn(&OriginState) -> u64| {
        let sample = |one: &OriginState| (one.url.clone(), Sample::Count(read(one)));
        origins.iter().map(sample).collect()
    };
    [
        of_proxy(
            "origin_healthy",
            Kind::Gauge,
            "1 for an origin that is asked, 0 for one that checks or failures took out.",
            "origin",
            samples(|one| u64::from(one.is_healthy)),
        ),
        of_proxy(
            "origin_requests_open",
            Kind::Gauge,
            "Requests to an origin now.",
            "origin",
            samples(|one| one.requests_open),
        ),
    ]
}

fn certificates(ends: &[(String, u64)]) -> Family {
    of_proxy(
        "certificate_expires_seconds",
        Kind::Gauge,
        "When a certificate of the proxy's ends, or another of its chain, in seconds since 1970.",
        "name",
        ends.iter().map(|(name, end_s)| (name.clone(), Sample::Count(*end_s))).collect(),
    )
}

fn latency(workers: &[Arc<Counters>]) -> Family {
    let (hits, misses) = latencies(workers);
    let sample = |name: &str, times| (name.to_owned(), Sample::Times(Box::new(times)));
    of_proxy(
        "latency_seconds",
        Kind::Histogram,
        "Time from the end of a request's headers to the headers of its answer: from=\"store\" \
         without, from=\"origin\" with a request to the origin.",
        "from",
        vec![sample("store", hits), sample("origin", misses)],
    )
}

fn process(process: &Process) -> [Family; 5] {
    let family = |name: &str, kind, help, sample| Family {
        name: format!("process_{name}"),
        kind,
        help,
        label: "",
        samples: vec![(String::new(), sample)],
    };
    let (cpu, start) = (process.cpu_seconds, process.start_seconds);
    let count = Sample::Count;
    [
        family("cpu_seconds", Kind::Counter, "Processor time used.", Sample::Number(cpu)),
        family(
            "resident_memory_bytes",
            Kind::Gauge,
            "Memory in use.",
            count(process.resident_bytes),
        ),
        family("open_fds", Kind::Gauge, "Files and sockets open.", count(process.open_fds)),
        family("max_fds", Kind::Gauge, "The most there may be.", count(process.max_fds)),
        family(
            "start_time_seconds",
            Kind::Gauge,
            "When the process began, in seconds since 1970.",
            Sample::Number(start),
        ),
    ]
}

/// Families in OpenMetrics text without the closing `# EOF`.
pub(crate) fn render(families: &[Family]) -> String {
    let mut text = String::new();
    for family in families {
        family.render(&mut text);
    }
    text
}

impl Family {
    fn render(&self, text: &mut String) {
        let (name, kind) = (&self.name, self.kind);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "# TYPE {name} {}", kind.name());
        if let Some((_, unit @ ("seconds" | "bytes"))) = name.rsplit_once('_') {
            let _ = writeln!(text, "# UNIT {name} {unit}");
        }
        let _ = writeln!(text, "# HELP {name} {}", escaped(self.help));
        for (value, sample) in &self.samples {
            let label = match self.label {
                "" => String::new(),
                label => format!("{label}=\"{}\"", escaped(value)),
            };
            match sample {
                Sample::Times(times) => times.render(name, &label, text),
                other => {
                    let braced = if label.is_empty() { label } else { format!("{{{label}}}") };
                    let _ = write!(text, "{name}{}{braced} ", kind.suffix());
                    let _ = match other {
                        Sample::Number(number) => writeln!(text, "{number}"),
                        Sample::Count(count) => writeln!(text, "{count}"),
                        Sample::Times(_) => Ok(()),
                    };
                }
            }
        }
    }
}

/// Escapes text for a label value or help text.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    fn text(workers: &[Arc<Counters>]) -> String {
        let url = "http://a\"b".to_owned();
        let origins = vec![OriginState { url, is_healthy: true, requests_open: 2 }];
        let process = Some(Process::default());
        render(&families(workers, &Moment { origins, process, ..Moment::default() }))
    }

    #[test]
    fn what_workers_counted_is_summed() {
        let workers: Vec<Arc<Counters>> = (0..2).map(|_| Arc::default()).collect();
        workers[0].requests.add(2);
        workers[1].requests.add(3);
        workers[0].answered(StatusCode::NOT_MODIFIED);
        workers[1].hit_latency.record(std::time::Duration::from_micros(100));
        workers[0].sent(BodySource::Origin, 7);
        (0..3).for_each(|_| workers[1].under_way.up());
        workers[0].under_way.up();
        workers[0].under_way.down();
        let text = text(&workers);
        for line in [
            "damelo_proxy_requests_total 5",
            "damelo_proxy_responses_total{class=\"3xx\"} 1",
            "damelo_proxy_latency_seconds_count{from=\"store\"} 1",
            "damelo_proxy_client_body_bytes_total{from=\"origin\"} 7",
            "damelo_proxy_requests_open 3",
            "damelo_proxy_origin_requests_open{origin=\"http://a\\\"b\"} 2",
            "process_cpu_seconds_total 0",
        ] {
            assert!(text.contains(&format!("\n{line}\n")), "{line} in {text}");
        }
    }

    #[test]
    fn every_family_has_one_head_and_its_samples_follow() {
        let text = text(&[Arc::default()]);
        let mut family = String::new();
        for line in text.lines() {
            if let Some(head) = line.strip_prefix("# TYPE ") {
                assert_eq!(text.matches(&format!("# TYPE {head}\n")).count(), 1, "{head}");
                head.split(' ').next().unwrap().clone_into(&mut family);
            } else {
                let sample = line.trim_start_matches("# UNIT ").trim_start_matches("# HELP ");
                assert!(sample.starts_with(&family), "{line} in {family}");
            }
        }
    }
}
