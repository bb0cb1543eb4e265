//! How commands find a running proxy: its admin address and token.

use std::net::{SocketAddr, ToSocketAddrs};

use clap::Args;
use damelo_http_proxy::{AdminError, ask_admin};
use serde_json::Value;

use crate::failure::Failure;

/// The running proxy that a command asks.
#[derive(Debug, Clone, Args)]
pub(crate) struct AdminArgs {
    /// Admin address of a running proxy, as printed when it started [default: 127.0.0.1:9100]
    #[arg(long, value_name = "ADDR")]
    pub(crate) admin: Option<String>,
    /// Its admin token, if it wants one
    #[arg(long, value_name = "TOKEN", env = "DAMELO_ADMIN_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
}

impl AdminArgs {
    /// The proxy's answer; `order` makes it a POST.
    pub(crate) fn ask(&self, path: &str, order: Option<&str>) -> Result<Value, Failure> {
        let ask = |address| ask_admin(address, path, self.token.as_deref(), order);
        let (address, answer) = first_reached(&self.addresses()?, ask)?;
        // Every admin listener answers in JSON.
        serde_json::from_str(&answer).map_err(|_| AdminError::Protocol { address }.into())
    }

    /// The addresses, at least one, of `HOST:PORT`, `:PORT` or `PORT`.
    fn addresses(&self) -> Result<Vec<SocketAddr>, Failure> {
        let text = self.admin.as_deref().unwrap_or("127.0.0.1:9100");
        let text = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
        if let Ok(port) = text.trim_start_matches(':').parse::<u16>() {
            return Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]);
        }
        let addresses: Vec<_> = text.to_socket_addrs().into_iter().flatten().collect();
        if addresses.is_empty() {
            let text = format!("--admin: `{text}` is not an address: write HOST:PORT");
            return Err(Failure::Usage(text));
        }
        Ok(addresses)
    }
}

/// What the first of a host's addresses answers that can be reached: `localhost` may be ::1 before
/// it is 127.0.0.1, and a listener be on one of the two.
fn first_reached(
    addresses: &[SocketAddr],
    ask: impl Fn(SocketAddr) -> Result<String, AdminError>,
) -> Result<(SocketAddr, String), AdminError> {
    let (last, others) = addresses.split_last().expect("a host has an address");
    for address in others {
        match ask(*address) {
            // Nothing was sent.
            Err(AdminError::Connect { .. }) => {}
            answer => return answer.map(|answer| (*address, answer)),
        }
    }
    ask(*last).map(|answer| (*last, answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_asked_at_the_address_where_it_listens() {
        let [one, two, three] = [1, 2, 3].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let answers = |address: SocketAddr| match address.port() {
            1 => {
                let source = std::io::ErrorKind::ConnectionRefused.into();
                Err(AdminError::Connect { address, source })
            }
            2 => Ok("{}".to_owned()),
            _ => Err(AdminError::Timeout { address }),
        };
        let (reached, _) = first_reached(&[one, two, three], answers).unwrap();
        assert_eq!(reached, two);
        let failed = first_reached(&[three, two], answers).unwrap_err();
        assert!(matches!(failed, AdminError::Timeout { .. }), "an order may have been carried out");
        let failed = first_reached(&[one], answers).unwrap_err();
        assert!(matches!(failed, AdminError::Connect { .. }));
    }
}
