//! `damelo forward`: a caching forward proxy on a store, for permitted clients. This file combines
//! flags and configuration file into settings and prints what runs; `damelo-http-proxy` owns HTTP
//! and the rules.

use std::io::Read as _;
use std::time::Duration;

use clap::Args;
use damelo::Store;
use damelo_http_proxy::{ProxyError, RunningInfo, Settings, hash_credentials};
use serde_json::json;

use crate::failure::Failure;
use crate::output::Out;
use crate::proxy::serve_args::{self, ServeArgs};
use crate::proxy::serving::{Mode, serve};
use crate::proxy::transport_args::{flag, seconds, set_all, set_lists, time};

/// Longest password that `--hash-password` reads.
const PASSWORD_BYTES_MAX: u64 = 512;

const AFTER_HELP: &str = "\
Examples:
  damelo forward
  curl -x http://127.0.0.1:3128 http://example.org/
  damelo forward --remote --from 10.0.0.1:3128 --rule 'allow client=10.0.0.0/8 port=80,443'
  damelo forward --config /etc/damelo-forward.toml
  damelo forward --hash-password ann < password.txt >> users.txt
  damelo forward --remote --from 10.0.0.1:3128 --users users.txt --rule allow

Rules: `allow` or `deny`, then any of
  client=NETWORK,...              where the client is
  method=NAME,...                 GET, CONNECT, ...
  port=N[-N],...                  of the destination
  to=HOST|.DOMAIN|NETWORK,...     the destination: by name, with all below it, or by address
@FILE in place of a client or destination is a file with one of them a line, read again at SIGHUP.
The first rule that matches decides; a rule without conditions matches everything. After the last
one, clients on this host may and all others may not. Whatever the rules say, link-local addresses
and those of cloud metadata services are not reached without --to-link-local, nor this host's
loopback by clients from elsewhere without --to-loopback, nor the admin listener by anybody. http
is cached; https passes through CONNECT tunnels, which nobody can look into.";

/// Reach any origin through a cache: a forward proxy.
#[derive(Debug, Clone, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Forward {
    /// Address to listen on; one that is not loopback needs --remote [default: 127.0.0.1:3128]
    #[arg(long, value_name = "ADDR")]
    from: Option<String>,
    /// Listen on addresses that others can reach
    #[arg(long)]
    remote: bool,
    /// Who may go where; may be given many times, the first that matches decides
    #[arg(long, value_name = "RULE")]
    rule: Vec<String>,
    /// Names and hashed passwords of who may use the proxy; read again when the file changes
    #[arg(long, value_name = "FILE")]
    users: Option<String>,
    /// Read a password from standard input, print a line for the file of users, and end
    #[arg(long, value_name = "NAME")]
    hash_password: Option<String>,
    /// Reach link-local addresses and those of metadata services
    #[arg(long)]
    to_link_local: bool,
    /// Let clients from elsewhere reach this host's loopback addresses
    #[arg(long)]
    to_loopback: bool,
    /// Time to connect to an origin [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    connect_timeout: Option<Duration>,
    /// Time from the end of a request to the headers of the answer [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    origin_header_timeout: Option<Duration>,
    /// Time after which a tunnel in which nothing moves is cut [default: 600s]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    tunnel_idle_timeout: Option<Duration>,
    /// Tell origins who the client is, in X-Forwarded-For
    #[arg(long)]
    x_forwarded: bool,
    #[command(flatten)]
    serve: ServeArgs,
}

/// Serves until told to stop.
pub(crate) fn run(args: &Forward) -> Result<(), Failure> {
    if let Some(name) = &args.hash_password {
        return print_hash(name);
    }
    let loaded = args.clone();
    serve(
        Mode::Forward,
        move || settings(&loaded),
        |settings, store, running| print(args, settings, store, running),
    )
}

fn settings(args: &Forward) -> Result<Settings, Failure> {
    let mut settings = args.merged()?;
    if args.serve.sets("to") {
        let text = "--set to=: in a forward proxy the client says where to go: leave it out";
        return Err(Failure::Usage(text.to_owned()));
    }
    // The same for an origin in a file, which `damelo proxy` may use as well: it is ignored.
    settings.proxy = settings.forward_proxy();
    Ok(settings)
}

impl Forward {
    /// Merged settings, unchecked. Flags override the file, and `--set` overrides both.
    pub(super) fn merged(&self) -> Result<Settings, Failure> {
        self.serve.settings(Settings::for_forward(), |settings| {
            set_lists(settings, [("forward.rules", &self.rule)])?;
            set_all(
                settings,
                [
                    ("from", self.from.clone()),
                    ("timeouts.connect", time(self.connect_timeout)),
                    ("timeouts.origin_header", time(self.origin_header_timeout)),
                    ("timeouts.tunnel_idle", time(self.tunnel_idle_timeout)),
                    ("forwarded.x_forwarded", flag(self.x_forwarded, true)),
                    ("forward.users", self.users.clone()),
                    ("forward.remote", flag(self.remote, true)),
                    ("forward.to_link_local", flag(self.to_link_local, true)),
                    ("forward.to_loopback", flag(self.to_loopback, true)),
                ],
            )
        })
    }
}

fn print_hash(name: &str) -> Result<(), Failure> {
    let failed = |source| Failure::io("read a password from standard input", source);
    let mut password = Vec::new();
    // With room for a line's end, and one byte more to see that it is too long.
    std::io::stdin().take(PASSWORD_BYTES_MAX + 3).read_to_end(&mut password).map_err(failed)?;
    let line_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
    password.truncate(password.len() - password.iter().rev().take_while(|b| line_end(b)).count());
    if password.is_empty() {
        return Err(Failure::Usage("no password came on standard input".to_owned()));
    }
    if password.len() as u64 > PASSWORD_BYTES_MAX {
        // A hash of its beginning would let nobody in.
        let text = format!("the password is longer than {PASSWORD_BYTES_MAX} bytes");
        return Err(Failure::Usage(text));
    }
    let password = std::str::from_utf8(&password)
        .map_err(|error| failed(std::io::Error::new(std::io::ErrorKind::InvalidData, error)))?;
    let line = hash_credentials(name, password).map_err(|error| match error {
        ProxyError::UserName(_) => Failure::Usage(error.to_string()),
        other => Failure::Proxy(other),
    })?;
    let mut out = Out::new();
    out.line(format_args!("{line}"))?;
    out.finish()
}

fn print(
    args: &Forward,
    settings: &Settings,
    store: &Store,
    running: &RunningInfo,
) -> Result<(), Failure> {
    let url = serve_args::url(running);
    if args.serve.json {
        return serve_args::print_json(store, running, json!({ "proxy": url }));
    }
    let mut out = serve_args::start_message(settings);
    serve_args::print_store(&mut out, store)?;
    out.line(format_args!("proxy    {url}"))?;
    serve_args::print_listeners(&mut out, running)?;
    let here = serve_args::url_from_here(running.address);
    out.line(format_args!("try      curl -x {here} http://example.org/"))?;
    let config = &settings.forward;
    if config.remote && config.rules.iter().all(|rule| !rule.allow) {
        out.line(format_args!("No --rule allows anything: only clients on this host are served."))?;
    }
    out.finish()
}
