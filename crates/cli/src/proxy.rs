//! `damelo proxy`: a caching reverse proxy on a store. This file makes settings of flags and file, and
//! says what runs and where to look; HTTP is the business of `damelo-http-proxy`.

use std::path::PathBuf;

use clap::Args;
use damelo::{ByteSize, Store};
use damelo_http_proxy::{RunningInfo, Settings, Target};
use serde_json::json;

use crate::check_config;
use crate::failure::Failure;
use crate::output::{Out, thousands};
use crate::serving::{Mode, serve};
use crate::stat::volume_text;
use crate::transport_args::{ListenArgs, OriginArgs};

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
    /// The origin: http://HOST[:PORT], https://HOST[:PORT], unix:PATH, or demo
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
    #[command(flatten)]
    listen: ListenArgs,
    #[command(flatten)]
    origins: OriginArgs,
}

/// Serves until told to stop.
pub(crate) fn run(args: &Proxy) -> Result<(), Failure> {
    let loaded = args.clone();
    serve(
        Mode::Reverse,
        move || settings(&loaded),
        |settings, store, running| print(args, settings, store, running),
    )
}

/// The file, then the flags, then `--set`.
fn settings(args: &Proxy) -> Result<Settings, Failure> {
    let mut settings = match &args.config {
        None => Settings::default(),
        Some(path) => check_config::read(path, Settings::default())?,
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
    args.listen.apply(&mut settings)?;
    args.origins.apply(&mut settings)?;
    for set in &args.sets {
        settings.set(set).map_err(Failure::Usage)?;
    }
    if !settings.has_origin {
        return Err(Failure::Usage("no origin: say `to` in the file or --to".to_owned()));
    }
    Ok(settings)
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
            "listeners": running.listeners.iter().map(ToString::to_string).collect::<Vec<_>>(),
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
    for listener in &running.listeners {
        out.line(format_args!("also at  {listener}"))?;
    }
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
