//! `damelo proxy`: a caching reverse proxy on a store. This file opens the store, says what runs
//! and where to look, and turns Ctrl-C and SIGTERM into a graceful end; HTTP is the business of
//! `damelo-http-proxy`.
//!
//! Threads: the proxy's workers, and one that waits for signals. The store is closed after the
//! last worker has ended, so that the next start need not recover anything.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use damelo::{ByteSize, Config, Store};
use damelo_http_proxy::{Control, RunningInfo, Settings, Target};
use serde_json::json;

use crate::check_config;
use crate::failure::Failure;
use crate::names::Volumes;
use crate::opening::open_with;
use crate::output::{Out, thousands};
use crate::signals::Stop;
use crate::stat::volume_text;
use crate::supervisor;

/// Size of a cache that is made without a declared size.
const CACHE_BYTES: u64 = 1 << 30;
/// The same for the demo, which should not take a newcomer's disk.
const CACHE_BYTES_DEMO: u64 = 256 << 20;

/// Exit code of a process that did not end in time.
const EXIT_TOO_LATE: i32 = 4;

const AFTER_HELP: &str = "\
Examples:
  damelo proxy --to demo
  damelo proxy --to https://example.org
  damelo proxy --from 0.0.0.0:80 --to http://10.0.0.5:8000 --cache /var/cache/site.damelo:20GiB
  damelo proxy --to http://10.0.0.5:8000 --cache /dev/nvme1n1 --memory 4GiB --admin 127.0.0.1:9100
  damelo proxy --config /etc/damelo.toml --set timeouts.drain=3s

`--to demo` starts a small origin of its own with a page, images and a slow answer. Without
--cache the store is made in $XDG_CACHE_HOME/damelo or ~/.cache/damelo, one for each origin host,
or in the current directory where that cannot be; it is 1GiB (256MiB for the demo). A store that
exists keeps its size. Every answer says in `Cache-Status` what the cache did. Ctrl-C or SIGTERM
lets answers under way finish and closes the store; after kill -9 the hits are still there, too.
SIGHUP reads the file again without dropping a connection, SIGUSR1 opens the access log again.";

/// Serve an origin through a cache that survives restarts.
#[derive(Debug, Clone, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Proxy {
    /// Read settings from this file; flags override it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address to listen on [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    from: Option<String>,
    /// The origin: http://HOST[:PORT], https://HOST[:PORT], or demo
    #[arg(long, value_name = "URL", required_unless_present = "config")]
    to: Option<String>,
    /// Store to use, made with this size if it does not exist
    #[arg(long, value_name = "PATH[:SIZE]")]
    cache: Option<String>,
    /// Memory for data [default: 256MiB]
    #[arg(long, value_name = "SIZE")]
    memory: Option<ByteSize>,
    /// Address of the admin listener; `none` for none [default: a free port of 127.0.0.1]
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,
    /// Threads that serve [default: one for each core]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
    /// Send the client's Host to the origin, and cache by it
    #[arg(long)]
    preserve_host: bool,
    /// Write a line for each request to standard output, or to this file
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "stdout")]
    log: Option<String>,
    /// Set any key of the configuration file, such as timeouts.drain=3s
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Print what runs as one JSON object
    #[arg(long)]
    json: bool,
}

/// `PATH` or `PATH:SIZE`; the size counts only for a store that does not exist yet.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CacheSpec {
    path: PathBuf,
    size: Option<ByteSize>,
}

impl FromStr for CacheSpec {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<CacheSpec, Self::Err> {
        if let Some((path, size)) = text.rsplit_once(':')
            && let Ok(size) = size.parse()
        {
            return Ok(CacheSpec { path: path.into(), size: Some(size) });
        }
        Ok(CacheSpec { path: text.into(), size: None })
    }
}

/// Opens the store, serves until told to stop, closes the store.
pub(crate) fn run(args: &Proxy) -> Result<(), Failure> {
    let stop = Stop::on_signals()?;
    let mut settings = settings(args)?;
    settings.proxy.inherited.extend(supervisor::inherited_socket()?.map(Arc::new));
    // Before a cache file is made for an origin that cannot be one, or on an address that is taken.
    settings.proxy.check()?;
    settings.proxy.check_address()?;
    let store = open_store(&settings)?;
    let mut printed = Ok(());
    let signals = stop.clone();
    let ready = |running: RunningInfo| {
        printed = print(args, &settings, &store, &running);
        let reload = Reload { args: args.clone(), settings: settings.clone() };
        signals.handle_others(reload.handler(running.control.clone()));
        supervisor::notify(&format!("READY=1\nSTATUS=serving at {}", running.address));
    };
    let ended = {
        let (signals, stop_timeout) = (stop.clone(), settings.stop_timeout);
        async move {
            stop.await;
            supervisor::notify("STOPPING=1\nSTATUS=finishing what is under way");
            end_within(stop_timeout);
            // The handler holds a handle on the access log, which is closed next.
            signals.ignore_others();
        }
    };
    let served = damelo_http_proxy::run(settings.proxy.clone(), store.clone(), ready, ended);
    if served.is_ok() {
        eprintln!("damelo: closing the store");
    }
    let closed = store.close();
    served?;
    closed?;
    printed
}

/// Ends the process when the time is up, whatever it waits for: a disk that hangs, most likely.
fn end_within(time: Duration) {
    let end = move || {
        std::thread::sleep(time);
        eprintln!("damelo: not done after {} s: ending as after a crash", time.as_secs());
        std::process::exit(EXIT_TOO_LATE);
    };
    if std::thread::Builder::new().name("deadline".to_owned()).spawn(end).is_err() {
        eprintln!("damelo: no thread for the deadline: this may take longer");
    }
}

/// The file, then the flags, then `--set`.
fn settings(args: &Proxy) -> Result<Settings, Failure> {
    let mut settings = match &args.config {
        None => Settings::default(),
        Some(path) => check_config::read(path)?,
    };
    let flags = [
        ("from", args.from.clone()),
        ("to", args.to.clone()),
        ("cache", args.cache.clone()),
        ("memory", args.memory.map(|size| size.bytes().to_string())),
        ("admin.from", args.admin.clone()),
        ("workers", args.workers.map(|count| count.to_string())),
        ("preserve_host", args.preserve_host.then(|| "true".to_owned())),
        ("log.to", args.log.clone()),
    ];
    for (key, value) in flags {
        let Some(value) = value else { continue };
        settings.set(&format!("{key}={value}")).map_err(Failure::Usage)?;
    }
    for set in &args.sets {
        settings.set(set).map_err(Failure::Usage)?;
    }
    if !settings.has_origin {
        return Err(Failure::Usage("no origin: say `to` in the file or --to".to_owned()));
    }
    Ok(settings)
}

/// What SIGHUP needs: where the settings came from, and those that run.
struct Reload {
    args: Proxy,
    settings: Settings,
}

impl Reload {
    /// SIGHUP reads the settings again, SIGUSR1 opens the access log again.
    fn handler(mut self, control: Control) -> impl FnMut(i32) + Send + 'static {
        move |signal| {
            if signal == libc::SIGUSR1 {
                control.reopen_log();
            } else {
                self.reload(&control);
            }
        }
    }

    fn reload(&mut self, control: &Control) {
        supervisor::notify(&supervisor::reloading());
        self.reload_now(control);
        supervisor::notify("READY=1");
    }

    fn reload_now(&mut self, control: &Control) {
        let loaded = settings(&self.args).and_then(|new| {
            control.reload(new.proxy.clone())?;
            Ok(new)
        });
        match loaded {
            Err(failure) => {
                failure.print();
                eprintln!("damelo: the settings stay as they were");
            }
            Ok(new) => {
                for key in new.needs_restart(&self.settings) {
                    eprintln!("damelo: `{key}` has changed, which takes a restart");
                }
                eprintln!("damelo: settings reloaded, {} rules", new.rule_count());
            }
        }
    }
}

fn open_store(settings: &Settings) -> Result<Store, Failure> {
    let to = &settings.proxy.to;
    let default_bytes = if *to == Target::Demo { CACHE_BYTES_DEMO } else { CACHE_BYTES };
    let spec = match &settings.cache {
        Some(text) => text.parse().unwrap_or_else(|never: std::convert::Infallible| match never {}),
        None => default_cache(to),
    };
    let size = spec.size.unwrap_or(ByteSize::new(default_bytes));
    let mut config = Config::new(&spec.path, size);
    config.memory = settings.memory;
    open_with(config, &Volumes::from(spec.path.as_path()))
}

/// The user's cache directory, or the current one.
fn default_cache(to: &Target) -> CacheSpec {
    let name = cache_name(to);
    let variable =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let user = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    let path = match user.map(|dir| dir.join("damelo")) {
        Some(dir) if is_writable(&dir) => dir.join(format!("{name}.store")),
        _ => PathBuf::from(format!("damelo-{name}.store")),
    };
    CacheSpec { path, size: None }
}

fn is_writable(dir: &Path) -> bool {
    fs::create_dir_all(dir).is_ok() && tempfile::tempfile_in(dir).is_ok()
}

/// A file name for an origin: its host and port, whatever is awkward in a name replaced.
fn cache_name(to: &Target) -> String {
    let url = match to {
        Target::Demo => return "demo".to_owned(),
        Target::Url(url) => url,
    };
    let after_scheme = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
    let host = after_scheme.split(['/', '?', '#']).next().unwrap_or_default();
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-.".contains(c) { c } else { '_' };
    format!("origin-{}", host.chars().map(plain).collect::<String>())
}

fn print(
    args: &Proxy,
    settings: &Settings,
    store: &Store,
    running: &RunningInfo,
) -> Result<(), Failure> {
    let mut out = Out::new();
    let info = store.info();
    let volumes: Vec<String> = info.volumes.iter().map(volume_text).collect();
    let url = format!("http://{}", running.address);
    let metrics = running.admin.map(|admin| format!("http://{admin}/metrics"));
    if args.json {
        out.json(&json!({
            "store": volumes,
            "made": info.created,
            "memory_bytes": info.memory_bytes,
            "objects_max": info.objects_max,
            "origin": running.origin,
            "workers": running.workers,
            "url": url,
            "metrics": metrics,
        }))?;
        return out.finish();
    }
    let made = if info.created { "made just now" } else { "opened; what it holds is served" };
    out.line(format_args!("store    {}, {made}", volumes.join(", ")))?;
    out.line(format_args!(
        "memory   {} for data, {} for an index of at most {} objects",
        ByteSize::new(info.memory_bytes),
        ByteSize::new(info.index_bytes),
        thousands(info.objects_max)
    ))?;
    let demo = if settings.proxy.to == Target::Demo { " (the built-in demo)" } else { "" };
    out.line(format_args!("origin   {}{demo}", running.origin))?;
    out.line(format_args!("look at  {url}/"))?;
    if let Some(metrics) = metrics {
        out.line(format_args!("metrics  {metrics}"))?;
    }
    if settings.proxy.to == Target::Demo {
        print_suggestions(&mut out, &url)?;
    }
    out.line(format_args!("Ctrl-C ends it; start it again and the hits are still there."))?;
    out.finish()
}

fn print_suggestions(out: &mut Out, url: &str) -> Result<(), Failure> {
    out.line(format_args!("\nTry, twice each:"))?;
    for (path, what) in [
        ("/slow", "a second from the origin, then a hit"),
        ("/img/0.svg", "Cache-Status says what the cache did"),
        ("/api/time", "never stored"),
    ] {
        out.line(format_args!("  curl -i {url}{path:<12} # {what}"))?;
    }
    out.line(format_args!(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_may_have_a_size() {
        let spec = |text: &str| text.parse::<CacheSpec>().unwrap();
        let size = Some(ByteSize::new(20 << 30));
        assert_eq!(spec("/a/b:20GiB"), CacheSpec { path: "/a/b".into(), size });
        assert_eq!(spec("/a/b"), CacheSpec { path: "/a/b".into(), size: None });
        assert_eq!(spec("/a:b/c"), CacheSpec { path: "/a:b/c".into(), size: None });
    }

    #[test]
    fn every_origin_has_a_cache_of_its_own() {
        let name = |url: &str| cache_name(&url.parse().unwrap());
        assert_eq!(name("demo"), "demo");
        assert_eq!(name("https://Example.org:8443/x"), "origin-Example.org_8443");
        assert_eq!(name("http://[::1]:80"), "origin-___1__80");
    }
}
