//! Client of a running proxy's admin listener, for the command line.
//!
//! Threads: the caller's, with an event loop of its own for one request.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longest wait for a response: a purge waits for the disk.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Largest response body read.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Why an admin listener gave no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// Nobody listens at the address, or the connection broke.
    #[error("cannot reach the admin listener at {address}")]
    Connect {
        /// The address tried.
        address: SocketAddr,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The listener at the address is not an admin listener.
    #[error("what answered at {address} does not speak HTTP as an admin listener does")]
    Protocol {
        /// The address tried.
        address: SocketAddr,
    },
    /// The token cannot stand in a header.
    #[error("the admin token has a line's end or another character that no header can have")]
    Token,
    /// No response within the timeout.
    #[error("the admin listener at {address} did not answer within {} s", TIMEOUT.as_secs())]
    Timeout {
        /// The address tried.
        address: SocketAddr,
    },
    /// The listener refused the request.
    #[error("the proxy refused ({status}): {problem}")]
    Refused {
        /// The response's status.
        status: u16,
        /// The response's text.
        problem: String,
    },
}

/// Sends one request and returns the response's body. A request with a body is sent as a POST of
/// JSON. Blocks for a minute at most.
///
/// # Errors
/// See [`AdminError`]; every status but 200 is [`AdminError::Refused`].
pub fn ask_admin(
    address: SocketAddr,
    path: &str,
    token: Option<&str>,
    body: Option<&str>,
) -> Result<String, AdminError> {
    let connect = |source| AdminError::Connect { address, source };
    let event_loop = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let event_loop = event_loop.map_err(connect)?;
    event_loop.block_on(async {
        match timeout(TIMEOUT, exchange(address, path, token, body)).await {
            Ok(answer) => answer,
            Err(_) => Err(AdminError::Timeout { address }),
        }
    })
}

async fn exchange(
    address: SocketAddr,
    path: &str,
    token: Option<&str>,
    body: Option<&str>,
) -> Result<String, AdminError> {
    let protocol = || AdminError::Protocol { address };
    let token = token.map(|token| HeaderValue::from_str(&format!("Bearer {token}")));
    let token = token.transpose().map_err(|_| AdminError::Token)?;
    let stream = TcpStream::connect(address)
        .await
        .map_err(|source| AdminError::Connect { address, source })?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|_| protocol())?;
    tokio::spawn(connection);
    let method = if body.is_some() { Method::POST } else { Method::GET };
    let mut request = Request::builder().method(method).uri(path).header(HOST, address.to_string());
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, token);
    }
    if body.is_some() {
        request = request.header(CONTENT_TYPE, "application/json");
    }
    let body = Full::new(Bytes::copy_from_slice(body.unwrap_or_default().as_bytes()));
    let request = request.body(body).map_err(|_| protocol())?;
    let response = sender.send_request(request).await.map_err(|_| protocol())?;
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    let text = String::from_utf8(body.map_err(|_| protocol())?.to_bytes().to_vec());
    let text = text.map_err(|_| protocol())?;
    if status == StatusCode::OK {
        return Ok(text);
    }
    let problem = serde_json::from_str::<serde_json::Value>(&text)
        .ok()
        .and_then(|value| value["error"].as_str().map(str::to_owned))
        .unwrap_or_else(|| text.trim().to_owned());
    Err(AdminError::Refused { status: status.as_u16(), problem })
}
