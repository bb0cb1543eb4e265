//! HTTP caching proxy, reverse and forward, on the [`damelo`] store.
//!
//! [`run`] starts a reverse proxy from a [`ProxyConfig`] and an open store and blocks until told to
//! stop; [`run_forward`] does the same for a forward proxy. The rules of HTTP caching are pure
//! functions in [`damelo_http_rules`]. Sockets are at the edge: `listen` owns the clients'
//! connections, `upstream` the origins'. Between them a request passes through `handler`, `cache`
//! and, on a miss, `fetch` or `slices`; `vault` maps HTTP resources to the store. `ARCHITECTURE.md`
//! has a table of the modules. `docs/http-semantics.md` lists which parts of RFC 9111 are
//! implemented.
//!
//! ```no_run
//! use damelo::{ByteSize, Config, Store};
//! use damelo_http_proxy::{ProxyConfig, OriginTarget, run};
//! let store = Store::open(Config::new("/var/cache/damelo.store", ByteSize::new(20 << 30)))?;
//! let to = OriginTarget::Url("https://example.org".to_owned());
//! let config = ProxyConfig::new("127.0.0.1:8080".parse()?, to);
//! let forever = std::future::pending::<()>();
//! run(config, store.clone(), |info| println!("{}", info.address), forever)?;
//! store.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

// In the order of the table in `ARCHITECTURE.md`: a module uses only those above it.

// Building blocks.

// Messages for the operator.
mod say;
// Every error of this crate.
mod error;
// The operator's page for errors.
mod error_page;
// Hand-written bodies, streams, timers and wakers.
mod io;
// The operator's rules: conditions and actions.
mod ruleset;
// The configuration of a proxy: plain data.
mod config;
// Purge marks, which every hit is checked against.
mod purge;
// Counters, histograms, the busiest URLs.
mod metrics;
// The access log.
mod log;

// State that requests share.

// Parts that only a forward proxy has: access rules and authentication.
mod forward;
// The state of a client's connection that its requests can see.
mod client;
// Origins: balancing, health, connection pools, request and response bodies.
mod upstream;
// HTTP resources in the store: keys, entries, bodies, variants, slices, invalidation.
mod vault;
// Request coalescing: choice of the leader, waiting followers, and their results.
mod collapse;
// All parts of a running proxy, per worker and shared; applies new settings to them.
mod worker;

// The path of a request, from its end. Each stage uses only the stages before it in this list.

// A request as the cache sees it: key, request directives, the operator's rules, groups.
mod request;
// Responses to clients and their bodies.
mod answer;
// Fetches from the origin, and how their results change the store.
mod fetch;
// Range requests for responses that are not stored whole, slice by slice.
mod slices;
// Lookup and decision: serve, validate, lead a fetch or wait for one.
mod cache;
// One request from its headers to its answer: screening, PURGE, CONNECT, upgrades, or the cache.
mod handler;
// Connections of clients: sockets, TLS, PROXY protocol, limits, HTTP/1.1 and HTTP/2.
mod listen;

// How a proxy is started, configured and inspected.

// Health, metrics, purge orders, `explain` and `top`.
mod admin;
// Start, event loops, reload and graceful stop; the demo origin.
mod server;
// The configuration file: TOML in, checked settings out.
mod settings;

#[cfg(test)]
mod documents;
#[cfg(test)]
#[path = "../../store/tests/tapped/mod.rs"]
mod tapped;
// Entry points of the fuzz targets.
#[cfg(any(test, feature = "fuzzing"))]
#[cfg_attr(not(feature = "fuzzing"), allow(unreachable_pub, reason = "exported with the feature"))]
mod fuzz_tests;

use damelo_http_rules as rules;

pub use admin::client::{AdminError, ask_admin};
pub use config::tables::{
    AdminConfig, ErrorsConfig, FillConfig, GroupsConfig, Limits, LogConfig, ProxyProtocolConfig,
    PurgeConfig, Timeouts, TlsConfig,
};
pub use config::transport::{
    CertificateFiles, Ejection, ForwardedFields, HealthChecks, Inherited, ListenAddress, Listener,
    OriginChoice, ParseListenerError, ParseOriginChoiceError, Upstream,
};
pub use config::{
    Grouping, LogFormat, LogTarget, OriginTarget, ParseGroupingError, ProxyConfig, WriteLimit,
};
pub use damelo_http_rules::CachingConfig;
pub use error::ProxyError;
pub use forward::ForwardConfig;
pub use forward::access_rule::{AccessRule, Destination, ParseRuleError};
pub use forward::checks::CheckLimits;
pub use forward::users::hash_credentials;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use fuzz_tests::{
    configuration, credentials, forwarded_fields, messages, proxy_header, proxy_values,
    purge_marks, purge_order, redirects, stored_entry, users_file,
};
pub use ruleset::Ruleset;
pub use say::say;
pub use server::{KeptOpen, RunningInfo, run, run_forward};
pub use settings::{
    Settings, SettingsError, reference as settings_reference,
    reference_json as settings_reference_json,
};
pub use vault::writes::admission_within;
pub use worker::control::Control;
