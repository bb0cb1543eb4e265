//! How commands find a running proxy: its admin address and token.

use std::net::{SocketAddr, ToSocketAddrs};

use clap::Args;
use damelo_http_proxy::{AdminError, ask_admin};
use serde_json::Value;

use crate::failure::Failure;

/// The running proxy that a command asks.
#[derive(Debug, Clone, Args)]
pub(crate) struct AdminArgs {
    /// Admin address of a running proxy, as printed when it started
    #[arg(long, value_name = "ADDR")]
    pub(crate) admin: Option<String>,
    /// Its admin token, if it wants one
    #[arg(long, value_name = "TOKEN", env = "DAMELO_ADMIN_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
}

impl AdminArgs {
    /// The proxy's answer; `order` makes it a POST.
    pub(crate) fn ask(&self, path: &str, order: Option<&str>) -> Result<Value, Failure> {
        let address = self.address()?;
        let answer = ask_admin(address, path, self.token.as_deref(), order)?;
        // Every admin listener answers in JSON.
        serde_json::from_str(&answer).map_err(|_| AdminError::Protocol { address }.into())
    }

    /// The address: `HOST:PORT`, `:PORT` or `PORT`.
    pub(crate) fn address(&self) -> Result<SocketAddr, Failure> {
        let text = self.admin.as_deref().unwrap_or("127.0.0.1:9100");
        let text = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
        if let Ok(port) = text.trim_start_matches(':').parse::<u16>() {
            return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
        }
        let addresses = text.to_socket_addrs().ok();
        addresses.and_then(|mut list| list.next()).ok_or_else(|| {
            Failure::Usage(format!("--admin: `{text}` is not an address: write HOST:PORT"))
        })
    }
}
