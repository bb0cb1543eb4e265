//! HTTP caching proxy, reverse and forward, on the [`damelo`] store.
//!
//! [`run`] starts one from a [`ProxyConfig`] and an open store and blocks until told to stop;
//! [`run_forward`] does the same for a forward proxy. The rules of HTTP caching are pure functions
//! in [`damelo_http_rules`]; sockets are at the edge: `listen` has the clients, `upstream` the
//! origins. Between them a request goes through `handler`, `cache`, and, if what it wants is not
//! stored, `fetch` or `slices`; `vault` is the store as HTTP sees it. `ARCHITECTURE.md` has a table of
//! the modules. What of RFC 9111 is covered, and what not yet, is in `docs/http-semantics.md`.
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

// How a proxy is started, set up and looked into.

// The configuration file: TOML in, checked settings out.
mod settings;
// Start, event loops, reload and drained stop; the demo's origin.
mod server;
// Health, metrics, orders to purge, `explain` and `top`.
mod admin;

// The way of a request. Each stage uses those after it, never one before.

// Connections of clients: sockets, TLS, PROXY protocol, limits, HTTP/1.1 and HTTP/2.
mod listen;
// One request from its headers to its answer: screening, PURGE, CONNECT, upgrades, or the cache.
mod handler;
// Lookup and decision: serve, validate, lead a fetch or wait for one.
mod cache;
// Ranges of what is not stored whole, slice by slice.
mod slices;
// Asking the origin, and what its answer does to what is stored.
mod fetch;
// Answers to clients and their bodies.
mod answer;
// A request as the cache sees it: key, wishes, the operator's rules, groups.
mod request;

// What requests share.

// All parts of a running proxy, for one worker and for all; new settings for them.
mod worker;
// Request coalescing: who leads, who waits, and what they get.
mod collapse;
// The store as HTTP sees it: keys, entries, bodies, variants, slices, invalidation.
mod vault;
// Origins: choice, health, connection pools, bodies to and from them.
mod upstream;
// What a request knows of its client's connection.
mod client;
// The forward proxy's part: who may go where.
mod forward;

// What these are made from.

// The access log.
mod log;
// Counters, histograms, the busiest URLs.
mod metrics;
// Marks of purges: what hits are compared with.
mod purge;
// What a proxy is started with: plain data.
mod config;
// The operator's rules: conditions and what follows from them.
mod ruleset;
// Bodies, streams, timers and wakes by hand.
mod io;
// Every error of this crate.
mod error;
// Messages for the operator.
mod say;

#[cfg(test)]
mod documents;
// What fuzz targets reach into.
#[cfg(any(test, feature = "fuzzing"))]
#[cfg_attr(not(feature = "fuzzing"), allow(unreachable_pub, reason = "exported with the feature"))]
mod fuzz_tests;

use damelo_http_rules as rules;

pub use admin::client::{AdminError, ask_admin};
pub use config::transport::{
    CertificateFiles, ClientLimits, Ejection, ForwardedFields, HealthChecks, Inherited,
    ListenAddress, Listener, OriginChoice, ParseListenerError, ParseOriginChoiceError, Transport,
    Upstream,
};
pub use config::{Grouping, LogFormat, LogTarget, ParseGroupingError, ProxyConfig, Target};
pub use damelo_http_rules::CachingConfig;
pub use error::ProxyError;
pub use forward::ForwardConfig;
pub use forward::access::{AccessRule, Destination, ParseRuleError};
pub use forward::checks::CheckLimits;
pub use forward::users::hash_credentials;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use fuzz_tests::{
    configuration, credentials, proxy_header, proxy_values, purge_marks, purge_order, stored_entry,
};
pub use ruleset::Ruleset;
pub use say::say;
pub use server::{RunningInfo, run, run_forward};
pub use settings::{Settings, SettingsError, reference as settings_reference};
pub use worker::control::Control;
