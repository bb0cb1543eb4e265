//! `damelo forward`: a caching forward proxy on a store, for those who may use it. This file opens
//! the store and says what runs; HTTP and the rules are the business of `damelo-http-proxy`.
//!
//! Threads: the proxy's workers, and one that waits for signals. The store is closed after the
//! last worker has ended.

use std::io::Read as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use damelo::{ByteSize, Config, Store};
use damelo_http_proxy::{AccessRule, ForwardConfig, ProxyError, RunningInfo, hash_credentials};
use serde_json::json;

use crate::failure::Failure;
use crate::names::Volumes;
use crate::opening::open_with;
use crate::output::Out;
use crate::proxy::{Address, AdminAddress, CacheSpec, cache_path, refuse_taken};
use crate::signals::Stop;
use crate::stat::volume_text;
use crate::transport_args::{ListenArgs, seconds};

/// Size of a cache that is made without a declared size.
const CACHE_BYTES: u64 = 1 << 30;
/// Longest password that `--hash-password` reads.
const PASSWORD_BYTES_MAX: u64 = 512;

const AFTER_HELP: &str = "\
Examples:
  damelo forward
  curl -x http://127.0.0.1:3128 http://example.org/
  damelo forward --remote --from 10.0.0.1:3128 --rule 'allow client=10.0.0.0/8 port=80,443'
  damelo forward --hash-password ann < password.txt >> users.txt
  damelo forward --remote --from 10.0.0.1:3128 --users users.txt --rule allow

Rules: `allow` or `deny`, then any of
  client=NETWORK,...              where the client is
  method=NAME,...                 GET, CONNECT, ...
  port=N[-N],...                  of the destination
  to=HOST|.DOMAIN|NETWORK,...     the destination: by name, with all below it, or by address
The first rule that matches decides; a rule without conditions matches everything. After the last
one, clients on this host may and all others may not. Whatever the rules say, link-local addresses
and those of cloud metadata services are not reached without --to-link-local, nor this host's
loopback by clients from elsewhere without --to-loopback. http is cached; https passes through
CONNECT tunnels, which nobody can look into.";

/// Reach any origin through a cache: a forward proxy.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Forward {
    /// Address to listen on; one that is not loopback needs --remote
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:3128")]
    from: Address,
    /// Listen on addresses that others can reach
    #[arg(long)]
    remote: bool,
    /// Who may go where; may be given many times, the first that matches decides
    #[arg(long, value_name = "RULE")]
    rule: Vec<AccessRule>,
    /// Names and hashed passwords of who may use the proxy; read again when the file changes
    #[arg(long, value_name = "FILE")]
    users: Option<PathBuf>,
    /// Read a password from standard input, print a line for the file of users, and end
    #[arg(long, value_name = "NAME")]
    hash_password: Option<String>,
    /// Reach link-local addresses and those of metadata services
    #[arg(long)]
    to_link_local: bool,
    /// Let clients from elsewhere reach this host's loopback addresses
    #[arg(long)]
    to_loopback: bool,
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
    /// Time to connect to an origin
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    connect_timeout: Duration,
    /// Time from the end of a request to the headers of the answer
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    answer_timeout: Duration,
    /// Time after which a tunnel in which nothing moves is cut
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = seconds)]
    tunnel_timeout: Duration,
    /// Tell origins who the client is, in X-Forwarded-For
    #[arg(long)]
    x_forwarded: bool,
    /// Write a line for each request to standard output
    #[arg(long)]
    log: bool,
    /// Print what runs as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    listen: ListenArgs,
}

/// Opens the store, serves until told to stop, closes the store.
pub(crate) fn run(args: &Forward) -> Result<(), Failure> {
    if let Some(name) = &args.hash_password {
        return print_hash(name);
    }
    let stop = Stop::on_signals()?;
    refuse_taken(args.from.0)?;
    let store = open_store(args)?;
    let mut printed = Ok(());
    let ready = |running: RunningInfo| printed = print(args, &store, &running);
    let served = damelo_http_proxy::run_forward(configure(args), store.clone(), ready, stop);
    if served.is_ok() {
        eprintln!("damelo: closing the store");
    }
    let closed = store.close();
    served?;
    closed?;
    printed
}

fn configure(args: &Forward) -> ForwardConfig {
    let mut config = ForwardConfig::new(args.from.0);
    config.remote = args.remote;
    config.rules.clone_from(&args.rule);
    config.users.clone_from(&args.users);
    config.to_link_local = args.to_link_local;
    config.to_loopback = args.to_loopback;
    let proxy = &mut config.proxy;
    proxy.admin = args.admin.0;
    proxy.access_log = args.log;
    proxy.connect_timeout = args.connect_timeout;
    proxy.header_timeout = args.answer_timeout;
    proxy.transport.tunnel_idle_timeout = args.tunnel_timeout;
    if let Some(workers) = args.workers {
        proxy.workers = usize::from(workers);
    }
    args.listen.apply(proxy);
    proxy.transport.forwarding.x_forwarded = args.x_forwarded;
    config
}

fn print_hash(name: &str) -> Result<(), Failure> {
    let mut password = String::new();
    std::io::stdin()
        .take(PASSWORD_BYTES_MAX)
        .read_to_string(&mut password)
        .map_err(|source| Failure::io("read a password from standard input", source))?;
    let password = password.trim_end_matches(['\r', '\n']);
    if password.is_empty() {
        return Err(Failure::Usage("no password came on standard input".to_owned()));
    }
    let line = hash_credentials(name, password).map_err(|error| match error {
        ProxyError::UserName(_) => Failure::Usage(error.to_string()),
        other => Failure::Proxy(other),
    })?;
    let mut out = Out::new();
    out.line(format_args!("{line}"))?;
    out.finish()
}

fn open_store(args: &Forward) -> Result<Store, Failure> {
    let spec =
        args.cache.clone().unwrap_or_else(|| CacheSpec { path: cache_path("forward"), size: None });
    let mut config = Config::new(&spec.path, spec.size.unwrap_or(ByteSize::new(CACHE_BYTES)));
    config.memory = args.memory;
    open_with(config, &Volumes::from(spec.path.as_path()))
}

fn print(args: &Forward, store: &Store, running: &RunningInfo) -> Result<(), Failure> {
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
            "workers": running.workers,
            "proxy": url,
            "listeners": running.listeners.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "metrics": metrics,
        }))?;
        return out.finish();
    }
    let made = if info.created { "made just now" } else { "opened; what it holds is served" };
    out.line(format_args!("store    {}, {made}", volumes.join(", ")))?;
    out.line(format_args!("proxy    {url}"))?;
    for listener in &running.listeners {
        out.line(format_args!("also     {listener}"))?;
    }
    if let Some(metrics) = metrics {
        out.line(format_args!("metrics  {metrics}"))?;
    }
    out.line(format_args!("try      curl -x {url} http://example.org/"))?;
    if args.remote && args.rule.iter().all(|rule| !rule.allow) {
        out.line(format_args!("No --rule allows anything: only clients on this host are served."))?;
    }
    out.finish()
}
