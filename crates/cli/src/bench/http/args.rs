//! The command line of `damelo bench http`, and the combinations that it rejects.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use damelo::ByteSize;

use super::demand::Kind;
use crate::failure::Failure;
use crate::lab::ReadArgs;

/// Default length of a measurement in seconds.
const SECONDS: u32 = 10;

const AFTER_HELP: &str = "\
Examples:
  damelo bench http hit                            8 KiB from memory, our own proxy
  damelo bench http zipf --memory 512MiB --cache 8GiB --objects 393216
  damelo bench http pages --embedded 15 --verify
  damelo bench http fill --threads 2 --seconds 20
  damelo bench http ranges --objects 30 --size 20MiB --range 64KiB --verify
  damelo bench http trace --trace access.log --memory 64MiB --cache 1GiB
  damelo bench http zipf --restart                 kill -9 after the warm-up, then start again
  damelo bench http zipf --kill-every 2 --seconds 3600 --tail 1.3 --objects 300000 --memory 64MiB
                                                   a verified soak of an hour, disk turned over
  damelo bench http zipf --kill-every 2 --changing --seconds 600 --objects 5000 --cache 256MiB
                                                   the same while objects change and are purged
  damelo bench http zipf --origin-listen 127.0.0.1:8000 --against http://127.0.0.1:8081 \\
      --pid 0,$(cat nginx.pid) --rounds 5          beside nginx, which has that origin

Without --url the proxy is a child of this process on a temporary cache below --dir. All proxies
have the built-in origin behind them: configure others to fetch from --origin-listen. Columns:
told = hits by Cache-Status or X-Cache; hit = 1 - origin requests / requests; disk/req = reads of
the device of --dir by everybody; own/req = the store's own count; cpu us = CPU time of the proxy
for each request. Ratios divide the first proxy by the others, round by round; medians are printed.
A trace is asked for as GETs in its order, by as many connections as there are, every object with
the first length that it has there; `damelo lab trace filter` and `sample` make others of it.
Responses need Content-Length. Build with --release.";

/// Load on a caching proxy, and on others beside it.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Http {
    /// What is asked for
    #[arg(value_enum)]
    pub(crate) workload: Kind,
    /// The proxy to measure [default: one of our own]
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Proxies to measure in turn with it
    #[arg(long, value_name = "URL,...", value_delimiter = ',')]
    pub(crate) against: Vec<String>,
    /// Requests in absolute form, as to a forward proxy
    #[arg(long)]
    pub(crate) forward: bool,
    /// Address of the built-in origin
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub(crate) origin_listen: String,
    /// Objects of the catalogue of zipf, pages and ranges [default: 10000]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    objects: Option<u32>,
    /// Length of a body, or its mean [default: 8KiB]
    #[arg(long, value_name = "SIZE")]
    size: Option<ByteSize>,
    /// Lengths by a Pareto law with this exponent, above 1 [default: all alike]
    #[arg(long, value_name = "EXPONENT")]
    pub(crate) tail: Option<f64>,
    /// Objects that a page embeds [default: 15]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(0..=10_000))]
    embedded: Option<u32>,
    /// Exponent of the zipf distribution [default: 0.8]
    #[arg(long, value_name = "ALPHA")]
    alpha: Option<f64>,
    /// Objects of the hit workload [default: 1]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    hot: Option<u32>,
    /// Length of what the ranges workload asks for at once [default: 64KiB]
    #[arg(long, value_name = "SIZE")]
    range: Option<ByteSize>,
    /// Threads of the load generator
    #[arg(long, value_name = "COUNT", default_value = "1",
          value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) threads: u16,
    /// Connections of each thread
    #[arg(long, value_name = "COUNT", default_value = "32",
          value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) connections: u16,
    /// Length of a measurement [default: 10; a trace goes to its end]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(crate) seconds: Option<u32>,
    /// End a measurement after COUNT requests instead of after a time
    #[arg(long, value_name = "COUNT", conflicts_with = "seconds",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) requests: Option<u64>,
    /// Seconds of the workload before a measurement, after every object was asked for once; none
    /// before a fill or a trace, which are measured from the first request on [default: 2]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(0..=86_400))]
    warmup: Option<u32>,
    /// Measurements of each proxy
    #[arg(long, value_name = "COUNT", default_value = "1",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// Number of the first round; each draws its own requests
    #[arg(long, value_name = "NUMBER", default_value = "1", conflicts_with = "restart",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) first_round: u32,
    /// Check every byte
    #[arg(long)]
    pub(crate) verify: bool,
    /// Kill our own proxy after the warm-up, start it again, measure from exec on
    #[arg(long, conflicts_with_all = ["url", "against", "requests", "rounds", "pid"])]
    pub(crate) restart: bool,
    /// Soak: check every byte while our own proxy is killed and started again, every SECONDS on
    /// average
    #[arg(long, value_name = "SECONDS",
          conflicts_with_all = ["url", "against", "requests", "rounds", "restart", "warmup", "first_round", "pid"])]
    pub(crate) kill_every: Option<f64>,
    /// With --kill-every: the origin changes its objects all the time and has some purged; an
    /// answer that may not be served any more is wrong, too
    #[arg(long, conflicts_with_all = ["tail", "embedded", "forward", "origin_listen"])]
    pub(crate) changing: bool,
    /// Ask for the objects of an earlier run, as its JSON names it, and do not ask for all of them
    /// first
    #[arg(long, value_name = "RUN", conflicts_with = "restart")]
    pub(crate) again: Option<u64>,
    /// Memory of our own proxy
    #[arg(long, value_name = "SIZE", default_value = "256MiB", conflicts_with = "url")]
    pub(crate) memory: ByteSize,
    /// Disk of our own proxy
    #[arg(long, value_name = "SIZE", default_value = "1GiB", conflicts_with = "url")]
    pub(crate) cache: ByteSize,
    /// Threads of our own proxy [default: one for each core]
    #[arg(long, value_name = "COUNT", conflicts_with = "url", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) workers: Option<u16>,
    /// Directory of the temporary cache; its device's reads are counted
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) dir: PathBuf,
    /// Processes of the proxies, in order, for CPU time; 0 where unknown or our own
    #[arg(long, value_name = "PID,...", value_delimiter = ',')]
    pub(crate) pid: Vec<u32>,
    /// Metrics page of the proxy of --url, for the store's own count of reads
    #[arg(long, value_name = "URL")]
    pub(crate) metrics: Option<String>,
    /// Seed of everything random
    #[arg(long, default_value = "1")]
    pub(crate) seed: u64,
    /// Print one JSON object for each measurement, and a summary for each proxy
    #[arg(long)]
    pub(crate) json: bool,
    /// What the trace workload asks for: a file in any form that `damelo lab` reads, or a generator
    #[arg(long, value_name = "TRACE", help_heading = "Trace")]
    pub(crate) trace: Option<String>,
    #[command(flatten, next_help_heading = "Trace")]
    pub(crate) reading: ReadArgs,
}

impl Http {
    /// Refuses combinations that parse but make no sense.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let usage = |text: String| Err(Failure::Usage(text));
        if self.tail.is_some_and(|tail| !(tail > 1.0 && tail <= 100.0)) {
            return usage("--tail must be above 1 and at most 100".to_owned());
        }
        if !(0.0..=10.0).contains(&self.alpha()) {
            return usage("--alpha must be from 0 to 10".to_owned());
        }
        if !(1..=1 << 30).contains(&self.size_bytes()) {
            return usage("--size must be from 1 byte to 1GiB".to_owned());
        }
        if self.range_bytes() == 0 {
            return usage("--range must be at least 1 byte".to_owned());
        }
        if self.workload == Kind::Fill && (self.restart || self.kill_every.is_some()) {
            return usage(
                "--restart and --kill-every need a workload that hits: hit, zipf, pages or ranges"
                    .to_owned(),
            );
        }
        self.check_soak()?;
        self.check_trace()?;
        self.check_workload()?;
        self.check_targets()
    }

    fn check_soak(&self) -> Result<(), Failure> {
        let usage = |text: String| Err(Failure::Usage(text));
        // clap's `requires` is not enforced if the required argument conflicts with one that is
        // given or has a default.
        if self.changing && self.kill_every.is_none() {
            return usage("--changing needs --kill-every".to_owned());
        }
        if self.changing && self.workload != Kind::Zipf {
            return usage("--changing has a workload of its own: zipf".to_owned());
        }
        if self.workload == Kind::Fill && self.again.is_some() {
            return usage(
                "--again needs a workload that hits: hit, zipf, pages or ranges".to_owned(),
            );
        }
        if self.kill_every.is_some_and(|every| !(0.05..=86_400.0).contains(&every)) {
            return usage("--kill-every must be from 0.05 to 86400 seconds".to_owned());
        }
        Ok(())
    }

    fn check_targets(&self) -> Result<(), Failure> {
        let usage = |text: String| Err(Failure::Usage(text));
        let asks_others =
            [(self.again.is_some(), "--again"), (self.metrics.is_some(), "--metrics")];
        if self.url.is_none()
            && let Some((_, option)) = asks_others.into_iter().find(|(is_given, _)| *is_given)
        {
            return usage(format!("{option} is about a proxy that runs already: give its --url"));
        }
        let targets = 1 + self.against.len();
        if self.pid.len() > targets {
            return usage(format!("{} --pid for {targets} proxies", self.pid.len()));
        }
        if self.url.is_none() && self.pid.first().is_some_and(|&pid| pid > 0) {
            return usage(
                "the first of --pid is our own proxy's without --url: give 0 there".to_owned(),
            );
        }
        Ok(())
    }

    fn check_trace(&self) -> Result<(), Failure> {
        let usage = |text: String| Err(Failure::Usage(text));
        if self.workload != Kind::Trace {
            let given = self.trace.as_ref().map(|_| "--trace").or(self.reading.given());
            return given
                .map_or(Ok(()), |option| usage(format!("{option} is for the workload trace")));
        }
        if self.trace.is_none() {
            return usage("the workload trace needs --trace FILE, or a generator".to_owned());
        }
        let unused = [
            (self.requests.is_some(), "--requests (--num-req reads so many)"),
            (self.restart, "--restart"),
            (self.kill_every.is_some(), "--kill-every"),
            (self.again.is_some(), "--again"),
        ];
        let given = unused.into_iter().find_map(|(is_given, option)| is_given.then_some(option));
        given.map_or(Ok(()), |option| usage(format!("{option} is for other workloads than trace")))
    }

    /// Refuses what other workloads have a use for: who gives it expects another measurement.
    fn check_workload(&self) -> Result<(), Failure> {
        use Kind::{Fill, Hit, Pages, Ranges, Zipf};
        const DRAWING: &[Kind] = &[Hit, Zipf, Pages, Ranges];
        const MADE: &[Kind] = &[Hit, Zipf, Pages, Fill, Ranges];
        let options: [(bool, &str, &[Kind]); 7] = [
            (self.objects.is_some(), "--objects", &[Zipf, Pages, Ranges]),
            (self.size.is_some(), "--size", MADE),
            (self.tail.is_some(), "--tail", MADE),
            (self.embedded.is_some(), "--embedded", MADE),
            (self.alpha.is_some(), "--alpha", DRAWING),
            (self.hot.is_some(), "--hot", &[Hit]),
            (self.range.is_some(), "--range", &[Ranges]),
        ];
        // A warm-up of no time is what the other workloads have anyway.
        let warmup = (self.warmup > Some(0), "--warmup", DRAWING);
        let is_unused = |&(is_given, _, kinds): &(bool, &str, &[Kind])| {
            is_given && !kinds.contains(&self.workload)
        };
        let Some((_, option, kinds)) = options.into_iter().chain([warmup]).find(is_unused) else {
            return Ok(());
        };
        let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
        let (which, name) = (names.join(", "), self.workload.name());
        let plural = if names.len() > 1 { "s" } else { "" };
        let text = format!("{option} is for the workload{plural} {which}, not for {name}");
        Err(Failure::Usage(text))
    }

    /// Objects of the catalogue.
    pub(crate) fn objects(&self) -> u32 {
        self.objects.unwrap_or(10_000)
    }

    /// Length of a body, or its mean.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.size.map_or(8 << 10, |size| size.bytes())
    }

    /// Objects that a page embeds.
    pub(crate) fn embedded(&self) -> u32 {
        self.embedded.unwrap_or(15)
    }

    /// Exponent of the zipf distribution.
    pub(crate) fn alpha(&self) -> f64 {
        self.alpha.unwrap_or(0.8)
    }

    /// Length of what is asked for at once of an object.
    pub(crate) fn range_bytes(&self) -> u64 {
        self.range.map_or(64 << 10, |range| range.bytes())
    }

    /// Seconds of the workload before a measurement.
    pub(crate) fn warmup_s(&self) -> u32 {
        self.warmup.unwrap_or(2)
    }

    /// Length of a measurement.
    pub(crate) fn length(&self) -> Duration {
        Duration::from_secs(self.length_s().into())
    }

    /// The same in seconds.
    pub(crate) fn length_s(&self) -> u32 {
        self.seconds.unwrap_or(SECONDS)
    }

    /// Number of objects or pages that the workload draws from.
    pub(crate) fn drawn_from(&self) -> u32 {
        match self.workload {
            Kind::Hit => self.hot.unwrap_or(1),
            Kind::Zipf | Kind::Ranges => self.objects(),
            Kind::Pages => (self.objects() / (self.embedded() + 1)).max(1),
            Kind::Fill | Kind::Trace => 1,
        }
    }
}
