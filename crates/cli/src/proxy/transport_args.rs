//! Transport options: listeners, TLS, PROXY protocol, limits on clients, connections to origins.
//! Each sets, and takes precedence over, a key of the configuration file. Named files are read at
//! start, which reports their errors.

use std::time::Duration;

use clap::Args;
use damelo_http_proxy::Settings;

use crate::failure::Failure;

/// Listeners and limits towards clients.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Clients")]
pub(crate) struct ListenArgs {
    /// Listen here, too: [proxy+][tls+]tcp:ADDR:PORT or unix:PATH; `proxy+` wants a PROXY header
    #[arg(long, value_name = "LISTENER")]
    listen: Vec<String>,
    /// Certificate chain and key for `tls+` listeners, PEM files; read again when they change
    #[arg(long, value_name = "CHAIN,KEY")]
    certificate: Vec<String>,
    /// Network whose PROXY headers are believed
    #[arg(long, value_name = "NETWORK")]
    proxy_protocol_network: Vec<String>,
    /// Connections at once [default: 10000]
    #[arg(long, value_name = "COUNT")]
    connections: Option<usize>,
    /// Connections at once from one address, loopback excepted; 0 for no limit [default: 1024]
    #[arg(long, value_name = "COUNT")]
    connections_per_client: Option<usize>,
    /// Time a client has for the headers of a request [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    client_header_timeout: Option<Duration>,
    /// Time a connection may be idle between requests [default: 75s]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    client_idle_timeout: Option<Duration>,
}

impl ListenArgs {
    pub(crate) fn apply(&self, settings: &mut Settings) -> Result<(), Failure> {
        set_lists(
            settings,
            [
                ("listen", &self.listen),
                ("tls.certificates", &self.certificate),
                ("proxy_protocol.networks", &self.proxy_protocol_network),
            ],
        )?;
        set_all(
            settings,
            [
                ("limits.connections_max", text(self.connections)),
                ("limits.connections_per_client_max", text(self.connections_per_client)),
                ("timeouts.client_header", time(self.client_header_timeout)),
                ("timeouts.client_idle", time(self.client_idle_timeout)),
            ],
        )
    }
}

/// How origins are reached.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Origins")]
pub(crate) struct OriginArgs {
    /// Further origins of the same site
    #[arg(long, value_name = "URL")]
    more_origins: Vec<String>,
    /// Which of several is asked: hash (each path has its origin) or least-loaded [default: hash]
    #[arg(long, value_name = "HOW")]
    origin_choice: Option<String>,
    /// Ask each origin for this path at intervals, and leave alone those that do not answer well
    #[arg(long, value_name = "PATH")]
    check: Option<String>,
    /// Time from one check to the next [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = seconds, requires = "check")]
    check_interval: Option<Duration>,
    /// Speak HTTP/2 to http origins; https ones are asked whether they do
    #[arg(long)]
    http2_clear_text: bool,
    /// Speak HTTP/1.1 to https origins, too
    #[arg(long)]
    no_http2: bool,
    /// Certificate authorities of https origins, a PEM file [default: those of the system]
    #[arg(long, value_name = "FILE")]
    authorities: Option<String>,
    /// Requests at once to each origin; 0 for no limit [default: 0]
    #[arg(long, value_name = "COUNT")]
    requests_per_origin: Option<usize>,
    /// Time to connect to an origin [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    connect_timeout: Option<Duration>,
    /// Time from the end of a request to the headers of the answer [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    origin_header_timeout: Option<Duration>,
    /// Do not tell the origin about the client in X-Forwarded-For, -Host and -Proto
    #[arg(long)]
    no_x_forwarded: bool,
    /// Tell the origin about the client in Forwarded (RFC 7239)
    #[arg(long)]
    forwarded: bool,
    /// Believe what clients wrote into these fields: right if another proxy stands before this one
    #[arg(long)]
    forwarded_trust_client: bool,
    /// Time for a whole exchange with an origin [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    total_timeout: Option<Duration>,
}

impl OriginArgs {
    pub(crate) fn apply(&self, settings: &mut Settings) -> Result<(), Failure> {
        let check = self.check.as_ref().map(|path| match time(self.check_interval) {
            Some(interval) => format!("{path} every {interval}"),
            None => path.clone(),
        });
        set_lists(settings, [("upstream.more_origins", &self.more_origins)])?;
        set_all(
            settings,
            [
                ("upstream.origin_choice", self.origin_choice.clone()),
                ("upstream.check", check),
                ("upstream.http2_clear_text", flag(self.http2_clear_text, true)),
                ("upstream.http2", flag(self.no_http2, false)),
                ("upstream.authorities", self.authorities.clone()),
                ("upstream.requests_per_origin_max", text(self.requests_per_origin)),
                ("timeouts.connect", time(self.connect_timeout)),
                ("timeouts.origin_header", time(self.origin_header_timeout)),
                ("timeouts.total", time(self.total_timeout)),
                ("forwarded.x_forwarded", flag(self.no_x_forwarded, false)),
                ("forwarded.forwarded", flag(self.forwarded, true)),
                ("forwarded.trust_client", flag(self.forwarded_trust_client, true)),
            ],
        )
    }
}

/// A number as the text of a setting.
fn text(value: Option<usize>) -> Option<String> {
    value.map(|value| value.to_string())
}

/// A time as the text of a setting.
pub(crate) fn time(value: Option<Duration>) -> Option<String> {
    value.map(|time| format!("{}ms", time.as_millis().max(1)))
}

/// The value that a flag sets its key to, if the flag was given.
pub(crate) fn flag(given: bool, to: bool) -> Option<String> {
    given.then(|| to.to_string())
}

/// Sets the keys whose value is given.
pub(crate) fn set_all<const N: usize>(
    settings: &mut Settings,
    values: [(&str, Option<String>); N],
) -> Result<(), Failure> {
    for (key, value) in values {
        let Some(value) = value else { continue };
        settings.set_flag(key, &value).map_err(Failure::Usage)?;
    }
    Ok(())
}

/// Sets the lists that are not empty.
pub(crate) fn set_lists<const N: usize>(
    settings: &mut Settings,
    lists: [(&str, &[String]); N],
) -> Result<(), Failure> {
    for (key, items) in lists {
        if !items.is_empty() {
            settings.set_list(key, items).map_err(Failure::Usage)?;
        }
    }
    Ok(())
}

/// Parses a time in seconds, or with a unit. Fractions are allowed; more than zero, at most a day.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let end = text.find(|c: char| c.is_ascii_lowercase()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor = match unit {
        "" | "s" => 1.0,
        "ms" => 0.001,
        "m" => 60.0,
        "h" => 3600.0,
        _ => f64::NAN,
    };
    let wrong = || "write a number of seconds, or 500ms, 30s, 5m, 2h".to_owned();
    let seconds = number.parse::<f64>().map_err(|_| wrong())? * factor;
    if factor.is_nan() {
        return Err(wrong());
    }
    if seconds > 0.0 && seconds <= 86_400.0 {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("more than 0 and at most 86400 seconds".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        assert_eq!(seconds("0.5").unwrap(), Duration::from_millis(500));
        assert_eq!(seconds("5s").unwrap(), Duration::from_secs(5));
        assert_eq!(seconds("500ms").unwrap(), Duration::from_millis(500));
        assert_eq!(seconds("1.5m").unwrap(), Duration::from_secs(90));
        assert_eq!(seconds("24h").unwrap(), Duration::from_secs(86_400));
        for text in ["0", "-1", "NaN", "inf", "86401", "25h", "0ms", "s", "", "5 s", "5x", "5d"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
