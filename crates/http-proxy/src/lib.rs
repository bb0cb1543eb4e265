//! HTTP caching proxy, reverse and forward, on the [`damelo`] store.
//!
//! [`run`] starts one from a [`ProxyConfig`] and an open store and blocks until told to stop;
//! [`run_forward`] does the same for a forward proxy. The rules of HTTP caching are pure functions
//! in [`damelo_http_rules`]; sockets are at the edge: `listen` has the clients, `upstream` the
//! origins, `forward` says who may go where. Between them `serve` takes one request to its answer,
//! `vault` is the store as HTTP sees it, `fetching` acts on what an origin answers, `fill` moves a
//! response to client and store at once. What of RFC 9111 is covered, and what not yet, is in
//! `docs/http-semantics.md`.
//!
//! ```no_run
//! use damelo::{ByteSize, Config, Store};
//! use damelo_http_proxy::{ProxyConfig, Target, run};
//! let store = Store::open(Config::new("/var/cache/damelo.store", ByteSize::new(20 << 30)))?;
//! let to = Target::Url("https://example.org".to_owned());
//! let config = ProxyConfig::new("127.0.0.1:8080".parse()?, to);
//! let forever = std::future::pending::<()>();
//! run(config, store.clone(), |info| println!("{}", info.address), forever)?;
//! store.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod admin;
mod answer;
mod cache;
mod client;
mod collapse;
mod config;
#[cfg(test)]
mod documents;
mod error;
mod fetch;
mod forward;
mod handler;
mod io;
mod listen;
mod log;
mod metrics;
mod purge;
mod request;
mod ruleset;
mod server;
mod settings;
mod slices;
mod upstream;
mod vault;
mod worker;

use damelo_http_rules as rules;

pub use admin::client::{AdminError, ask_admin};
pub use config::transport::{
    CertificateFiles, Choice, ClientLimits, Ejection, Forwarding, HealthChecks, ListenAddress,
    Listener, ParseChoiceError, ParseListenerError, Transport, Upstream,
};
pub use config::{Grouping, LogFormat, LogTarget, ProxyConfig, Target};
pub use damelo_http_rules::Rules;
pub use error::ProxyError;
pub use forward::ForwardConfig;
pub use forward::access::{AccessRule, Destination, ParseRuleError};
pub use forward::auth::hash_credentials;
pub use ruleset::Ruleset;
pub use server::{RunningInfo, run, run_forward};
pub use settings::{Settings, SettingsError, reference as settings_reference};
pub use worker::control::Control;
