//! Options of transport: listeners, TLS, PROXY protocol, limits on clients, how origins are
//! reached. They are put into a [`ProxyConfig`] here; what is wrong with files is found at start.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use damelo_http_proxy::{CertificateFiles, Choice, HealthChecks, Listener, ProxyConfig};
use ipnet::IpNet;

/// Listeners and limits towards clients.
#[derive(Debug, Args)]
#[command(next_help_heading = "Clients")]
pub(crate) struct ListenArgs {
    /// Listen here, too: [proxy+][tls+]tcp:ADDR:PORT or unix:PATH; `proxy+` wants a PROXY header
    #[arg(long, value_name = "LISTENER")]
    listen: Vec<Listener>,
    /// Certificate chain and key for `tls+` listeners, PEM files; read again when they change
    #[arg(long, value_name = "CHAIN,KEY")]
    certificate: Vec<CertificatePair>,
    /// Network whose PROXY headers are believed
    #[arg(long, value_name = "NETWORK")]
    proxy_from: Vec<IpNet>,
    /// Connections at once
    #[arg(long, value_name = "COUNT", default_value_t = 10_000)]
    connections: usize,
    /// Connections at once from one address, loopback excepted; 0 for no limit
    #[arg(long, value_name = "COUNT", default_value_t = 1024)]
    connections_per_client: usize,
    /// Time a client has for the headers of a request
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    header_timeout: Duration,
    /// Time a connection may be idle between requests
    #[arg(long, value_name = "SECONDS", default_value = "75", value_parser = seconds)]
    idle_timeout: Duration,
}

impl ListenArgs {
    pub(crate) fn apply(&self, config: &mut ProxyConfig) {
        config.connections_max = self.connections;
        let transport = &mut config.transport;
        transport.listeners.clone_from(&self.listen);
        transport.certificates = self.certificate.iter().map(|pair| pair.0.clone()).collect();
        transport.proxy_protocol_from.clone_from(&self.proxy_from);
        let clients = &mut transport.clients;
        clients.connections_per_client_max = self.connections_per_client;
        clients.header_timeout = self.header_timeout;
        clients.idle_timeout = self.idle_timeout;
    }
}

/// How origins are reached.
#[derive(Debug, Args)]
#[command(next_help_heading = "Origins")]
pub(crate) struct OriginArgs {
    /// Another origin of the same site
    #[arg(long, value_name = "URL")]
    also_to: Vec<String>,
    /// Which of several is asked: hash (each path has its origin) or least-loaded
    #[arg(long, value_name = "HOW", default_value = "hash")]
    choose: Choice,
    /// Ask each origin for this path at intervals, and leave alone those that do not answer well
    #[arg(long, value_name = "PATH")]
    check: Option<String>,
    /// Time from one check to the next
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    check_interval: Duration,
    /// Speak HTTP/2 to http origins; https ones are asked whether they do
    #[arg(long)]
    h2c: bool,
    /// Speak HTTP/1.1 to https origins, too
    #[arg(long)]
    no_http2: bool,
    /// Certificate authorities of https origins, a PEM file [default: those of the system]
    #[arg(long, value_name = "FILE")]
    authorities: Option<PathBuf>,
    /// Requests at once to each origin; 0 for no limit
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    requests_per_origin: usize,
    /// Time to connect to an origin
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    connect_timeout: Duration,
    /// Time from the end of a request to the headers of the answer
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    answer_timeout: Duration,
    /// Do not tell the origin about the client in X-Forwarded-For, -Host and -Proto
    #[arg(long)]
    no_x_forwarded: bool,
    /// Tell the origin about the client in Forwarded (RFC 7239)
    #[arg(long)]
    forwarded: bool,
    /// Drop what clients wrote into these fields: right if no other proxy stands before this one
    #[arg(long)]
    distrust_forwarded: bool,
    /// Time for a whole exchange with an origin [default: no limit]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    total_timeout: Option<Duration>,
}

impl OriginArgs {
    pub(crate) fn apply(&self, config: &mut ProxyConfig) {
        config.connect_timeout = self.connect_timeout;
        config.header_timeout = self.answer_timeout;
        let forwarding = &mut config.transport.forwarding;
        forwarding.x_forwarded = !self.no_x_forwarded;
        forwarding.forwarded = self.forwarded;
        forwarding.trust_client = !self.distrust_forwarded;
        let upstream = &mut config.transport.upstream;
        upstream.more_origins.clone_from(&self.also_to);
        upstream.choice = self.choose;
        upstream.checks = self.check.as_ref().map(|path| HealthChecks {
            path: path.clone(),
            interval: self.check_interval,
            ..HealthChecks::default()
        });
        upstream.http2 = !self.no_http2;
        upstream.http2_clear_text = self.h2c;
        upstream.authorities.clone_from(&self.authorities);
        upstream.requests_per_origin_max = self.requests_per_origin;
        upstream.total_timeout = self.total_timeout;
    }
}

/// `CHAIN,KEY`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CertificatePair(CertificateFiles);

/// A pair that is none.
#[derive(Debug, thiserror::Error)]
#[error("write CHAIN.pem,KEY.pem")]
struct ParsePairError;

impl FromStr for CertificatePair {
    type Err = ParsePairError;

    fn from_str(text: &str) -> Result<CertificatePair, ParsePairError> {
        let (chain, key) = text.split_once(',').ok_or(ParsePairError)?;
        if chain.is_empty() || key.is_empty() {
            return Err(ParsePairError);
        }
        Ok(CertificatePair(CertificateFiles {
            chain: PathBuf::from(chain),
            key: PathBuf::from(key),
        }))
    }
}

/// Seconds, a fraction allowed, more than none and at most a day.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "write a number of seconds".to_owned())?;
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
        for text in ["0", "-1", "NaN", "inf", "86401", "5s"] {
            assert!(seconds(text).is_err(), "{text}");
        }
        assert!("a.pem,b.pem".parse::<CertificatePair>().is_ok());
        for text in ["a.pem", ",b.pem", "a.pem,"] {
            assert!(text.parse::<CertificatePair>().is_err(), "{text}");
        }
    }
}
