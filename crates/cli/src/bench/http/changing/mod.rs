//! `--changing`: the soak (see `soak`) with an origin whose objects change all the time. Some
//! changes are followed by a purge, of a URL, a group or a path prefix, hard or soft; others are
//! left to freshness and validation. Every response must consist of one version's bytes, and that
//! version must have been servable when it was requested: not from before an acknowledged purge,
//! and not superseded for longer than its lifetime, whichever process was killed meanwhile.
//!
//! All lives are asked under one host, as keys hold it: under another nothing that an earlier life
//! stored would be found, and nothing be tested across a kill.
//!
//! Threads: the clients', the changer's (changes and purges), the origin's, and the main thread,
//! which kills the proxy.

mod client;
mod origin;
mod world;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use damelo_http_proxy::{AdminError, ask_admin};
use fastrand::Rng;
use serde_json::{Value, json};

use self::client::{Client, Seen};
use self::world::{FOLDERS, GROUPS, Kind, World};
use super::soak::LIFE_MIN;
use super::target::{OwnProxy, Running, resolve};
use super::{Http, fail_if_wrong};
use crate::bench::zipf::Zipf;
use crate::failure::Failure;
use crate::output::{Out, thousands};
use crate::progress::Progress;

/// Time between two changes.
const CHANGE_EVERY: Duration = Duration::from_millis(2);
/// The host of every request and every purge, whichever port a life of the proxy listens on.
const HOST: &str = "soak.test";
/// Status of a purge that the proxy cannot carry out yet.
const NOT_READY: u16 = 503;
/// Slice size in lives that use slices: small compared with large objects.
const SLICES: &str = "caching.slice_bytes=128KiB";

/// Totals over all lives of the proxy.
#[derive(Default)]
struct Soaked {
    kills: u64,
    changes: u64,
    purges: Purges,
    seen: Seen,
}

/// Acknowledged purges, by what they named.
#[derive(Default)]
struct Purges {
    url: u64,
    prefix: u64,
    tag: u64,
    group: u64,
    /// Orders that the proxy refused, and what it said of one: none can be wrong.
    refused: u64,
    refusal: Option<String>,
}

impl Purges {
    fn acknowledged(&self) -> u64 {
        self.url + self.prefix + self.tag + self.group
    }

    fn merge(&mut self, other: Purges) {
        self.url += other.url;
        self.prefix += other.prefix;
        self.tag += other.tag;
        self.group += other.group;
        self.refused += other.refused;
        self.refusal = self.refusal.take().or(other.refusal);
    }
}

/// Loads, changes, purges, kills and restarts until the time is over, then prints. Fails if an
/// answer was wrong.
pub(crate) fn run(args: &Http, proxy: &OwnProxy, every: Duration) -> Result<(), Failure> {
    let world = Arc::new(World::new(args.objects(), args.size_bytes(), args.seed));
    let origin = origin::start(Arc::clone(&world))?;
    let zipf = Zipf::new(args.objects(), args.alpha())?;
    let mut rng = Rng::with_seed(args.seed);
    let end = Instant::now() + args.length();
    let start = Instant::now();
    let mut progress = Progress::count("soak, seconds");
    let mut soaked = Soaked::default();
    while soaked.seen.wrong == 0 && soaked.purges.refused == 0 && Instant::now() < end {
        progress.set(start.elapsed().as_secs(), args.length_s().into());
        let left = end.saturating_duration_since(Instant::now());
        let life = LIFE_MIN + every.mul_f64(2.0 * rng.f64()).min(left);
        // Every other life fetches ranges in slices, on a cache that also holds whole objects from
        // the lives between.
        let sliced = soaked.kills % 2 == 1;
        let set = if sliced { vec![SLICES.to_owned()] } else { Vec::new() };
        let proxy = OwnProxy { origin, set, ..proxy.clone() };
        world.begin_life();
        live(args, (&proxy, life), (&world, &zipf), &mut rng, &mut soaked)?;
        soaked.kills += 1;
    }
    drop(progress);
    print(&soaked, args.json)?;
    if soaked.seen.answers == 0 {
        return Err(Failure::Child("not one answer came to be checked".to_owned()));
    }
    if soaked.seen.hung > 0 {
        return Err(Failure::Child(format!("{} requests got no answer", soaked.seen.hung)));
    }
    if let Some(refusal) = &soaked.purges.refusal {
        return Err(Failure::Child(format!("a purge was not carried out: {refusal}")));
    }
    fail_if_wrong(soaked.seen.wrong)
}

/// One life: from start to kill under load.
fn live(
    args: &Http,
    (proxy, life): (&OwnProxy, Duration),
    (world, zipf): (&World, &Zipf),
    rng: &mut Rng,
    soaked: &mut Soaked,
) -> Result<(), Failure> {
    let running = proxy.start()?;
    let (address, over) = (running.address, &AtomicBool::new(false));
    let mut changer = Changer { world, zipf, admin: admin_of(&running)?, rng: rng.fork() };
    let clients: Vec<Rng> = (0..args.threads * args.connections).map(|_| rng.fork()).collect();
    std::thread::scope(|scope| {
        let asking: Vec<_> = clients
            .into_iter()
            .map(|rng| {
                let seen = Seen::default();
                let client = Client { world, zipf, proxy: address, over, rng, seen };
                scope.spawn(move || client.run())
            })
            .collect();
        let changing = scope.spawn(|| changer.run(over));
        std::thread::sleep(life);
        over.store(true, Ordering::SeqCst);
        // Killed even after an error: otherwise the load would not end.
        let killed = running.kill();
        let panicked = || Failure::Child("a thread of the soak panicked".to_owned());
        for client in asking {
            soaked.seen.merge(client.join().map_err(|_| panicked())?);
        }
        let (changes, purges) = changing.join().map_err(|_| panicked())?;
        soaked.changes += changes;
        soaked.purges.merge(purges);
        killed
    })
}

/// Address of a running proxy's admin listener.
fn admin_of(running: &Running) -> Result<SocketAddr, Failure> {
    let metrics = running.metrics.as_deref().unwrap_or_default();
    resolve(metrics.trim_end_matches("/metrics"))
}

/// Changes objects and purges them.
struct Changer<'a> {
    world: &'a World,
    zipf: &'a Zipf,
    admin: SocketAddr,
    rng: Rng,
}

impl Changer<'_> {
    /// Runs until the proxy is killed. Returns the number of changes, and the purges.
    fn run(&mut self, over: &AtomicBool) -> (u64, Purges) {
        let (mut changes, mut purges) = (0, Purges::default());
        while !over.load(Ordering::SeqCst) {
            let number = u64::from(self.zipf.draw(&mut self.rng));
            self.world.change(number);
            changes += 1;
            let purged = match World::kind(number) {
                Kind::Purged | Kind::Large => self.rng.u8(..) < 200,
                Kind::Short(_) | Kind::Validated => self.rng.u8(..) < 20,
            };
            if purged {
                self.purge(number, &mut purges);
            }
            std::thread::sleep(CHANGE_EVERY);
        }
        (changes, purges)
    }

    /// Purges the object, possibly with others, and counts it if the proxy acknowledged it.
    fn purge(&mut self, number: u64, purges: &mut Purges) {
        let (step, count, mut order) = self.order(number, purges);
        order["soft"] = json!(self.rng.bool());
        // After the purge, versions older than the current ones are forbidden.
        let covered = (number % step..self.world.count()).step_by(step as usize);
        let since: Vec<(u64, u64)> = covered.map(|n| (n, self.world.current(n))).collect();
        match ask_admin(self.admin, "/purge", None, Some(&order.to_string())) {
            Ok(_) => *count += 1,
            Err(AdminError::Refused { status, problem }) if status != NOT_READY => {
                purges.refused += 1;
                purges.refusal = Some(format!("{order}: {status}, {problem}"));
                return;
            }
            // The proxy was killed or is not ready yet: it promised nothing.
            Err(_) => return,
        }
        for (number, version) in since {
            self.world.forbid_before(number, version);
        }
    }

    /// What to purge on account of an object: every how many objects it covers another, where such
    /// purges are counted, and the order.
    fn order<'p>(&mut self, number: u64, purges: &'p mut Purges) -> (u64, &'p mut u64, Value) {
        let (folder, group) = (number % FOLDERS, format!("g{}", number % GROUPS));
        match self.rng.u8(..) {
            0..=9 => {
                let prefix = json!({ "prefix": format!("http://{HOST}/v/{folder}/") });
                (FOLDERS, &mut purges.prefix, prefix)
            }
            10..=59 => (GROUPS, &mut purges.tag, json!({ "tag": group })),
            60..=79 => (GROUPS, &mut purges.group, json!({ "group": group })),
            _ => {
                let url = format!("http://{HOST}{}", World::path(number));
                (self.world.count(), &mut purges.url, json!({ "url": url }))
            }
        }
    }
}

fn print(soaked: &Soaked, as_json: bool) -> Result<(), Failure> {
    let mut out = Out::new();
    let Soaked { kills, changes, purges, seen } = soaked;
    if as_json {
        out.json(&json!({
            "soak": "damelo changing",
            "kills": kills,
            "changes": changes,
            "purges": purges.acknowledged(),
            "purges_by_url": purges.url,
            "purges_by_prefix": purges.prefix,
            "purges_by_tag": purges.tag,
            "purges_by_group": purges.group,
            "purges_refused": purges.refused,
            "requests": seen.answers,
            "body_bytes": seen.body_bytes,
            "hits": seen.hits,
            "hits_inherited": seen.hits_inherited,
            "wholes": seen.wholes,
            "parts": seen.parts,
            "not_modified": seen.not_modified,
            "permitted_old": seen.permitted_old,
            "cut_off": seen.cut_off,
            "broken": seen.broken,
            "broke": seen.broke,
            "errors": seen.errors,
            "hung": seen.hung,
            "wrong": seen.wrong,
            "reports": seen.reports,
        }))?;
        return out.finish();
    }
    out.line(format_args!(
        "{kills} kills; {} changes, {} purges acknowledged ({} of URLs, {} of prefixes, {} of tags, {} of \
         groups); {} answers checked ({:.1} GB): {} wholes, {} parts, {} not modified, {} of them hits, \
         {} of these from before a kill, {} of an older version as they may be, {} WRONG; {} cut off \
         by kills, {} broken off by the proxy, {} errors, {} without an answer",
        thousands(*changes),
        thousands(purges.acknowledged()),
        thousands(purges.url),
        thousands(purges.prefix),
        thousands(purges.tag),
        thousands(purges.group),
        thousands(seen.answers),
        seen.body_bytes as f64 / 1e9,
        thousands(seen.wholes),
        thousands(seen.parts),
        thousands(seen.not_modified),
        thousands(seen.hits),
        thousands(seen.hits_inherited),
        thousands(seen.permitted_old),
        seen.wrong,
        thousands(seen.cut_off),
        thousands(seen.broken),
        seen.errors,
        seen.hung,
    ))?;
    if let Some(broke) = &seen.broke {
        out.line(format_args!("  broken off: {broke}"))?;
    }
    for report in &seen.reports {
        out.line(format_args!("  {report}"))?;
    }
    out.finish()
}
