//! HTTP caching reverse proxy on the [`damelo`] store.
//!
//! [`run`] starts one from a [`ProxyConfig`] and an open store and blocks until told to stop. The
//! rules of HTTP caching are pure functions in [`damelo_http_rules`]; sockets are at the edge:
//! `server` accepts, `serve` takes one request to its answer, `vault` is the store as HTTP sees it,
//! `fetch` asks the origin, `fetching` acts on what it answers, `fill` moves a response to client
//! and store at once. What of RFC 9111 is covered, and what not
//! yet, is in `docs/http-semantics.md`.
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
mod admin_client;
mod answer;
mod ask;
mod body;
mod collapse;
mod config;
mod control;
mod demo;
mod deposit;
mod entry;
mod error;
mod explain;
mod fetch;
mod fetching;
mod fill;
mod groups;
mod histogram;
mod hot;
mod log;
mod metrics;
mod observe;
mod origin;
mod purge;
mod ruleset;
mod serve;
mod server;
mod settings;
mod slices;
mod steer;
mod variants;
mod vault;
mod worker;

use damelo_http_rules as rules;

pub use admin_client::{AdminError, ask_admin};
pub use config::{Grouping, LogFormat, LogTarget, ProxyConfig, Target};
pub use control::Control;
pub use damelo_http_rules::Rules;
pub use error::ProxyError;
pub use ruleset::Ruleset;
pub use server::{RunningInfo, run};
pub use settings::{Settings, SettingsError, reference as settings_reference};
