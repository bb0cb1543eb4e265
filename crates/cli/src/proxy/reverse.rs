//! `damelo proxy`: a caching reverse proxy on a store. This file combines flags and configuration
//! file into settings and prints what runs; `damelo-http-proxy` owns HTTP.

use clap::Args;
use damelo::{ByteSize, Store};
use damelo_http_proxy::{OriginTarget, RunningInfo, Settings};
use serde_json::json;

use crate::failure::Failure;
use crate::output::{Out, thousands};
use crate::proxy::serve_args::{self, ServeArgs};
use crate::proxy::serving::{Mode, serve};
use crate::proxy::transport_args::{OriginArgs, flag, set_all};

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
    /// Address to listen on [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    from: Option<String>,
    /// The origin: http://HOST[:PORT], https://HOST[:PORT], unix:/PATH, or demo
    #[arg(long, value_name = "URL", required_unless_present = "config")]
    to: Option<String>,
    /// Send the client's Host to the origin, and cache by it
    #[arg(long)]
    preserve_host: bool,
    #[command(flatten)]
    serve: ServeArgs,
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

fn settings(args: &Proxy) -> Result<Settings, Failure> {
    let settings = args.merged()?;
    if !settings.has_origin {
        return Err(Failure::Usage("no origin: say `to` in the file or --to".to_owned()));
    }
    Ok(settings)
}

impl Proxy {
    /// Merged settings, unchecked. Flags override the file, and `--set` overrides both.
    pub(super) fn merged(&self) -> Result<Settings, Failure> {
        self.serve.settings(Settings::default(), |settings| {
            set_all(
                settings,
                [
                    ("from", self.from.clone()),
                    ("to", self.to.clone()),
                    ("preserve_host", flag(self.preserve_host, true)),
                ],
            )?;
            self.origins.apply(settings)
        })
    }
}

fn print(
    args: &Proxy,
    settings: &Settings,
    store: &Store,
    running: &RunningInfo,
) -> Result<(), Failure> {
    let (info, url) = (store.info(), serve_args::url(running));
    if args.serve.json {
        let more = json!({ "objects_max": info.objects_max, "origin": running.origin, "url": url });
        return serve_args::print_json(store, running, more);
    }
    let mut out = serve_args::start_message(settings);
    serve_args::print_store(&mut out, store)?;
    out.line(format_args!(
        "memory   {} for data, {} for an index of at most {} objects",
        ByteSize::new(info.memory_bytes),
        ByteSize::new(info.index_bytes),
        thousands(info.objects_max)
    ))?;
    let is_demo = settings.proxy.to == OriginTarget::Demo;
    let demo = if is_demo { " (the built-in demo)" } else { "" };
    out.line(format_args!("origin   {}{demo}", running.origin))?;
    out.line(format_args!("look at  {url}/"))?;
    serve_args::print_listeners(&mut out, running)?;
    if is_demo {
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
