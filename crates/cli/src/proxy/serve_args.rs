//! Options shared by `damelo proxy` and `damelo forward`, and the start message of both. Each
//! option sets, and takes precedence over, a key of the configuration file.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use clap::Args;
use damelo::{ByteSize, Store};
use damelo_http_proxy::{LogTarget, RunningInfo, Settings};
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::output::Out;
use crate::proxy::check_config;
use crate::proxy::transport_args::{ListenArgs, set_all};
use crate::store::stat::volume_text;

/// Settings, store, admin listener, log.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServeArgs {
    /// Read settings from this file; flags override it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Store to use, made with this size if it does not exist; several paths are its volumes
    #[arg(long, value_name = "PATH[:SIZE],...")]
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
    /// Write a line for each request to standard output, or to this file
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "stdout")]
    log: Option<String>,
    /// Set any key of the configuration file, such as timeouts.drain=3s
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Print what runs as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    listen: ListenArgs,
}

impl ServeArgs {
    /// Whether a `--set` is about this key.
    pub(crate) fn sets(&self, key: &str) -> bool {
        self.sets.iter().any(|set| set.split_once('=').is_some_and(|(name, _)| name.trim() == key))
    }

    /// Merges the file, these flags, those of `more`, and `--set`; later ones override earlier
    /// ones.
    pub(crate) fn settings(
        &self,
        defaults: Settings,
        more: impl FnOnce(&mut Settings) -> Result<(), Failure>,
    ) -> Result<Settings, Failure> {
        let mut settings = match &self.config {
            None => defaults,
            Some(path) => check_config::read(path, defaults)?,
        };
        set_all(
            &mut settings,
            [
                ("cache", self.cache.clone()),
                ("memory", self.memory.map(|size| size.bytes().to_string())),
                ("admin.from", self.admin.clone()),
                ("workers", self.workers.map(|count| count.to_string())),
                ("log.to", self.log.clone()),
            ],
        )?;
        self.listen.apply(&mut settings)?;
        more(&mut settings)?;
        for set in &self.sets {
            settings.set(set).map_err(Failure::Usage)?;
        }
        Ok(settings)
    }
}

/// Where the start message goes: whoever reads the log on standard output expects its lines only.
pub(crate) fn start_message(settings: &Settings) -> Out {
    match settings.proxy.log.to {
        LogTarget::Stdout => Out::on_stderr(),
        LogTarget::File(_) | LogTarget::None => Out::new(),
    }
}

/// URL of the proxy's listening address.
pub(crate) fn url(running: &RunningInfo) -> String {
    format!("http://{}", running.address)
}

/// The URL to reach the proxy from this host: loopback if it listens on all addresses, since the
/// unspecified address is no destination.
pub(crate) fn url_from_here(mut address: SocketAddr) -> String {
    if address.ip().is_unspecified() {
        let loopback: IpAddr = match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        address.set_ip(loopback);
    }
    format!("http://{address}")
}

fn metrics(running: &RunningInfo) -> Option<String> {
    running.admin.map(|admin| format!("http://{admin}/metrics"))
}

fn volumes(store: &Store) -> Vec<String> {
    store.info().volumes.iter().map(volume_text).collect()
}

/// Prints the start message as JSON, with the fields of `more`: for programs, always on standard
/// output.
pub(crate) fn print_json(store: &Store, running: &RunningInfo, more: Value) -> Result<(), Failure> {
    let info = store.info();
    let listeners: Vec<String> = running.listeners.iter().map(ToString::to_string).collect();
    let all = json!({
        "store": volumes(store),
        "made": info.created,
        "memory_bytes": info.memory_bytes,
        "workers": running.workers,
        "listeners": listeners,
        "metrics": metrics(running),
    });
    let objects = [all, more].into_iter().filter_map(|part| part.as_object().cloned());
    let mut out = Out::new();
    out.json(&objects.flatten().collect::<Map<String, Value>>())?;
    out.finish()
}

/// Prints the line about the store.
pub(crate) fn print_store(out: &mut Out, store: &Store) -> Result<(), Failure> {
    let opened = "opened; what it holds is served";
    let made = if store.info().created { "made just now" } else { opened };
    out.line(format_args!("store    {}, {made}", volumes(store).join(", ")))
}

/// Prints the lines about further listeners and about metrics.
pub(crate) fn print_listeners(out: &mut Out, running: &RunningInfo) -> Result<(), Failure> {
    for listener in &running.listeners {
        out.line(format_args!("also at  {listener}"))?;
    }
    match metrics(running) {
        Some(metrics) => out.line(format_args!("metrics  {metrics}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_type_has_an_address_to_go_to() {
        for (address, url) in [
            ("0.0.0.0:3128", "http://127.0.0.1:3128"),
            ("[::]:3128", "http://[::1]:3128"),
            ("10.0.0.1:3128", "http://10.0.0.1:3128"),
            ("127.0.0.1:3128", "http://127.0.0.1:3128"),
        ] {
            assert_eq!(url_from_here(address.parse().expect("an address")), url);
        }
    }
}
