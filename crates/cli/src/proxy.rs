//! `damelo proxy`: a caching reverse proxy on a store. This file opens the store, says what runs
//! and where to look, and turns Ctrl-C and SIGTERM into a graceful end; HTTP is the business of
//! `damelo-http-proxy`.
//!
//! Threads: the proxy's workers, and one that waits for signals. The store is closed after the
//! last worker has ended, so that the next start need not recover anything.

use std::fs;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use damelo::{ByteSize, Config, Store};
use damelo_http_proxy::{ProxyConfig, ProxyError, RunningInfo, Target};
use serde_json::json;

use crate::failure::Failure;
use crate::names::Volumes;
use crate::opening::open_with;
use crate::output::{Out, thousands};
use crate::signals::Stop;
use crate::stat::volume_text;
use crate::transport_args::{ListenArgs, OriginArgs};

/// Size of a cache that is made without a declared size.
const CACHE_BYTES: u64 = 1 << 30;
/// The same for the demo, which should not take a newcomer's disk.
const CACHE_BYTES_DEMO: u64 = 256 << 20;

const AFTER_HELP: &str = "\
Examples:
  damelo proxy --to demo
  damelo proxy --to https://example.org
  damelo proxy --from 0.0.0.0:80 --to http://10.0.0.5:8000 --cache /var/cache/site.damelo:20GiB
  damelo proxy --to http://10.0.0.5:8000 --cache /dev/nvme1n1 --memory 4GiB --admin 127.0.0.1:9100

`--to demo` starts a small origin of its own with a page, images and a slow answer. Without
--cache the store is made in $XDG_CACHE_HOME/damelo or ~/.cache/damelo, one for each origin host,
or in the current directory where that cannot be; it is 1GiB (256MiB for the demo). A store that
exists keeps its size. Every answer says in `Cache-Status` what the cache did. Ctrl-C or SIGTERM
lets answers under way finish and closes the store; after kill -9 the hits are still there, too.";

/// Serve an origin through a cache that survives restarts.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Proxy {
    /// Address to listen on
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    from: Address,
    /// The origin: http://HOST[:PORT], https://HOST[:PORT], unix:PATH, or demo
    #[arg(long, value_name = "URL")]
    to: Target,
    /// Store to use, made with this size if it does not exist
    #[arg(long, value_name = "PATH[:SIZE]")]
    cache: Option<CacheSpec>,
    /// Memory for data
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    memory: ByteSize,
    /// Address for /metrics and /healthz; `none` for neither [default: a free port of 127.0.0.1]
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0", hide_default_value = true)]
    admin: AdminAddress,
    /// Threads that serve [default: one for each core]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
    /// Send the client's Host to the origin, and cache by it
    #[arg(long)]
    preserve_host: bool,
    /// Write a line for each request to standard output
    #[arg(long)]
    log: bool,
    /// Print what runs as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    listen: ListenArgs,
    #[command(flatten)]
    origins: OriginArgs,
}

/// An address as people write it: `127.0.0.1:8080`, `localhost:8080`, `:8080` or `8080`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Address(pub(crate) SocketAddr);

/// An address that could not be understood.
#[derive(Debug, thiserror::Error)]
#[error("write HOST:PORT, such as 127.0.0.1:8080")]
pub(crate) struct ParseAddressError;

impl FromStr for Address {
    type Err = ParseAddressError;

    fn from_str(text: &str) -> Result<Address, ParseAddressError> {
        if let Ok(port) = text.trim_start_matches(':').parse::<u16>() {
            return Ok(Address(SocketAddr::from(([127, 0, 0, 1], port))));
        }
        let mut addresses = text.to_socket_addrs().map_err(|_| ParseAddressError)?;
        addresses.next().map(Address).ok_or(ParseAddressError)
    }
}

/// Where the admin pages are, if anywhere.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AdminAddress(pub(crate) Option<SocketAddr>);

impl FromStr for AdminAddress {
    type Err = ParseAddressError;

    fn from_str(text: &str) -> Result<AdminAddress, ParseAddressError> {
        if text == "none" {
            return Ok(AdminAddress(None));
        }
        text.parse::<Address>().map(|address| AdminAddress(Some(address.0)))
    }
}

/// `PATH` or `PATH:SIZE`; the size counts only for a store that does not exist yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CacheSpec {
    pub(crate) path: PathBuf,
    pub(crate) size: Option<ByteSize>,
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
    refuse_taken(args.from.0)?;
    let store = open_store(args)?;
    let mut config = ProxyConfig::new(args.from.0, args.to.clone());
    config.admin = args.admin.0;
    config.preserve_host = args.preserve_host;
    config.access_log = args.log;
    if let Some(workers) = args.workers {
        config.workers = usize::from(workers);
    }
    args.listen.apply(&mut config);
    args.origins.apply(&mut config);
    let mut printed = Ok(());
    let ready = |running: RunningInfo| printed = print(args, &store, &running);
    let served = damelo_http_proxy::run(config, store.clone(), ready, stop);
    if served.is_ok() {
        eprintln!("damelo: closing the store");
    }
    let closed = store.close();
    served?;
    closed?;
    printed
}

/// The proxy's workers share their port (`SO_REUSEPORT`), and would share it with another proxy
/// without a word: a plain socket finds out first.
pub(crate) fn refuse_taken(address: SocketAddr) -> Result<(), Failure> {
    match TcpListener::bind(address) {
        Ok(_) => Ok(()),
        Err(source) => Err(Failure::Proxy(ProxyError::Listen { address, source })),
    }
}

fn open_store(args: &Proxy) -> Result<Store, Failure> {
    let default_bytes = if args.to == Target::Demo { CACHE_BYTES_DEMO } else { CACHE_BYTES };
    let spec = args.cache.clone().unwrap_or_else(|| default_cache(&args.to));
    let size = spec.size.unwrap_or(ByteSize::new(default_bytes));
    let mut config = Config::new(&spec.path, size);
    config.memory = args.memory;
    open_with(config, &Volumes::from(spec.path.as_path()))
}

fn default_cache(to: &Target) -> CacheSpec {
    CacheSpec { path: cache_path(&cache_name(to)), size: None }
}

/// A store in the user's cache directory, or in the current one.
pub(crate) fn cache_path(name: &str) -> PathBuf {
    let variable =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let user = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    match user.map(|dir| dir.join("damelo")) {
        Some(dir) if is_writable(&dir) => dir.join(format!("{name}.store")),
        _ => PathBuf::from(format!("damelo-{name}.store")),
    }
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

fn print(args: &Proxy, store: &Store, running: &RunningInfo) -> Result<(), Failure> {
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
    let demo = if args.to == Target::Demo { " (the built-in demo)" } else { "" };
    out.line(format_args!("origin   {}{demo}", running.origin))?;
    out.line(format_args!("look at  {url}/"))?;
    for listener in &running.listeners {
        out.line(format_args!("also     {listener}"))?;
    }
    if let Some(metrics) = metrics {
        out.line(format_args!("metrics  {metrics}"))?;
    }
    if args.to == Target::Demo {
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
    fn addresses_are_read_as_people_write_them() {
        let local = |port| Address(SocketAddr::from(([127, 0, 0, 1], port)));
        for (text, expected) in
            [("8080", local(8080)), (":81", local(81)), ("127.0.0.1:82", local(82))]
        {
            assert_eq!(text.parse::<Address>().unwrap(), expected, "{text}");
        }
        assert!("0.0.0.0:99999".parse::<Address>().is_err());
        assert!("none".parse::<AdminAddress>().unwrap().0.is_none());
    }

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
