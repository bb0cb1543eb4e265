//! Every key of the configuration file, declared once: parser, defaults, `check-config`, reload
//! and `docs/configuration.md` all come from this table.
//!
//! Invariants: names are unique; a key that is `live` takes effect on a reload, every other one
//! only on the next start. Pure, no threads.

use super::Settings;
use super::kinds::{
    Address, CachePath, Count, Flag, Format, GroupRule, Kind, LogFile, Networks, OriginUrl,
    Percent, Size, Text, Time, Value,
};

/// One key.
pub(crate) struct Key {
    /// Full name: table, dot, name.
    pub(crate) name: &'static str,
    /// What may be written.
    pub(crate) written: &'static str,
    /// Whether a reload applies it.
    pub(crate) live: bool,
    /// What it does, in one sentence or two.
    pub(crate) help: &'static str,
    /// Reads a value into the settings.
    pub(crate) set: fn(&mut Settings, &Value) -> Result<(), String>,
    /// The value in the settings, as it would be written.
    pub(crate) show: fn(&Settings) -> String,
}

macro_rules! keys {
    ($($name:literal $when:ident $kind:ident [$($field:ident).+: $type:ty] $help:literal;)*) => {
        /// All keys, in the order of the documents.
        pub(crate) const KEYS: &[Key] = &[$(Key {
            name: $name,
            written: <$kind as Kind<$type>>::WRITTEN,
            live: keys!(@ $when),
            help: $help,
            set: |settings, value| {
                settings.$($field).+ = <$kind as Kind<$type>>::read(value)?;
                Ok(())
            },
            show: |settings| <$kind as Kind<$type>>::show(&settings.$($field).+),
        },)*];
    };
    (@ live) => { true };
    (@ start) => { false };
}

keys! {
    "from" start Address [proxy.from: std::net::SocketAddr] "Address to listen on; port 0 takes a free one.";
    "to" start OriginUrl [proxy.to: crate::config::Target] "The origin.";
    "cache" start CachePath [cache: Option<String>] "Store to use, made with this size if it does not exist.";
    "memory" start Size [memory: damelo::ByteSize] "Memory for data.";
    "workers" start Count [proxy.workers: usize] "Threads that serve, each with its own event loop.";
    "name" live Text [proxy.name: String] "Name of this cache in `Cache-Status` and `Via`: letters, digits and `-`.";
    "preserve_host" live Flag [proxy.preserve_host: bool] "Send the client's `Host` to the origin, and cache by it.";
    "obey_request_directives" live Flag [proxy.rules.obey_request_directives: bool] "Obey `no-cache`, `max-age`, `min-fresh` and `max-stale` of requests.";
    "admin.from" start Address [proxy.admin: Option<std::net::SocketAddr>] "Address of the admin listener: metrics, health, purging, `explain` and `top`. Keep it on loopback.";
    "admin.token" live Text [proxy.admin_token: Option<String>] "What the admin listener wants as `Authorization: Bearer TOKEN` for all but `/healthz`, `/readyz` and `/metrics`.";
    "limits.header_bytes_max" live Size [proxy.header_bytes_max: usize] "Headers of requests and of the origin's responses larger than this are refused.";
    "limits.connections_max" start Count [proxy.connections_max: usize] "Connections of clients at once; further ones wait to be accepted.";
    "limits.body_bytes_max" live Size [proxy.body_bytes_max: u64] "Largest response body that is stored.";
    "limits.whole_body_bytes_max" start Size [proxy.whole_body_bytes_max: u64] "Bodies up to this size lie beside their headers and are served as one piece of memory; larger ones are streamed.";
    "limits.pool_idle_max" live Count [proxy.pool_idle_max: usize] "Idle connections to the origin kept by each worker.";
    "timeouts.connect" live Time [proxy.connect_timeout: std::time::Duration] "To connect to the origin, TLS included.";
    "timeouts.header" live Time [proxy.header_timeout: std::time::Duration] "From the end of a request to the origin's headers.";
    "timeouts.body_idle" live Time [proxy.body_idle_timeout: std::time::Duration] "Longest silence within a body, in either direction.";
    "timeouts.client" live Time [proxy.client_timeout: std::time::Duration] "For a client to send its headers, idle time before them included. Applies to new connections.";
    "timeouts.pool_idle" live Time [proxy.pool_idle_timeout: std::time::Duration] "An idle connection to the origin is kept so long.";
    "timeouts.collapse" live Time [proxy.collapse_wait: std::time::Duration] "Longest wait for another request that fetches the same resource.";
    "timeouts.drain" live Time [proxy.drain_timeout: std::time::Duration] "For answers under way when the proxy is told to stop.";
    "timeouts.stop" live Time [stop_timeout: std::time::Duration] "From SIGTERM to the end of the process: answers under way, writing out what is in memory, the checkpoint. What takes longer is cut off, as by a crash.";
    "fill.finish_bytes_max" live Size [proxy.finish_bytes_max: u64] "A fill goes on without its client if no more than this is left.";
    "fill.finish_percent_min" live Percent [proxy.finish_percent_min: u8] "A fill goes on without its client if this share is done.";
    "groups.by" live GroupRule [proxy.grouping: crate::config::Grouping] "What lies together where the origin does not name a group: a page and what it embeds, a host, a host and N path segments, a response header, or nothing.";
    "groups.prefetch" live Flag [proxy.prefetch_pages: bool] "When a document is read from disk, bring the objects of its group into memory.";
    "log.to" start LogFile [proxy.log_target: crate::config::LogTarget] "Where a line for each request goes. A file is opened again on SIGUSR1.";
    "log.format" live Format [proxy.log_format: crate::config::LogFormat] "What a line looks like.";
    "purge.method" live Flag [proxy.purge_method: bool] "Take the method `PURGE` as a purge of its URL instead of passing it on.";
    "purge.from" live Networks [proxy.purge_from: Vec<ipnet::IpNet>] "Networks that may purge with the method `PURGE`.";
    "purge.token" live Text [proxy.purge_token: Option<String>] "What who purges must show as `Authorization: Bearer TOKEN`.";
}

/// The key of this name.
pub(crate) fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// The known name that looks most like an unknown one, if any does.
pub(crate) fn nearest<'a>(
    unknown: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let scored = known.into_iter().map(|name| {
        // `timeouts.conect`, and `conect` written in the wrong table.
        let short = name.rsplit('.').next().unwrap_or(name);
        let unknown_short = unknown.rsplit('.').next().unwrap_or(unknown);
        let whole = strsim::jaro_winkler(unknown, name);
        let last = strsim::jaro_winkler(unknown_short, short) * 0.97;
        (whole.max(last), name)
    });
    let (score, name) = scored.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (score > 0.7).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_defaults_read_back() {
        let defaults = Settings::default();
        for (index, key) in KEYS.iter().enumerate() {
            assert!(KEYS[..index].iter().all(|other| other.name != key.name), "{}", key.name);
            assert!(!key.help.is_empty() && !key.written.is_empty());
            let shown = (key.show)(&defaults);
            if shown.starts_with('[') || key.name == "cache" {
                continue;
            }
            let mut settings = Settings::default();
            let value = Value::of_argument(shown.trim_matches('"'));
            (key.set)(&mut settings, &value).unwrap_or_else(|e| panic!("{}: {e}", key.name));
            assert_eq!((key.show)(&settings), shown, "{}", key.name);
        }
    }

    #[test]
    fn the_nearest_key_is_found() {
        let near = |text| nearest(text, KEYS.iter().map(|key| key.name));
        assert_eq!(near("timeouts.conect"), Some("timeouts.connect"));
        assert_eq!(near("memry"), Some("memory"));
        assert_eq!(near("connections_max"), Some("limits.connections_max"));
        assert_eq!(near("limit.body_bytes_max"), Some("limits.body_bytes_max"));
        assert_eq!(near("zzzz"), None);
    }
}
