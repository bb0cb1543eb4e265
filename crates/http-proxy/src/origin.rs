//! The origin: its URL taken apart, and how a byte stream to it is opened (TCP, TLS).
//!
//! Invariants: an https origin is checked against the certificate authorities of the system
//! (`SSL_CERT_FILE` and `SSL_CERT_DIR` are honoured); there is no way to switch the check off.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{HeaderValue, Uri};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::error::{FetchError, ProxyError};

/// Where requests go.
#[derive(Clone)]
pub(crate) struct Origin {
    /// `http` or `https`, part of every key.
    pub(crate) scheme: &'static str,
    /// Host and port as in the URL, lower case: `Host` of requests and part of keys.
    pub(crate) authority: String,
    /// The same as a header value.
    pub(crate) host_header: HeaderValue,
    host: String,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl Origin {
    pub(crate) fn parse(url: &str) -> Result<Origin, ProxyError> {
        let error = |reason| ProxyError::Origin { url: url.to_owned(), reason };
        let uri: Uri = url.parse().map_err(|_| error("it is not a URL"))?;
        let scheme = match uri.scheme_str() {
            Some("http") => "http",
            Some("https") => "https",
            _ => return Err(error("it must begin with http:// or https://")),
        };
        let authority = uri.authority().ok_or_else(|| error("it has no host"))?;
        if authority.as_str().contains('@') {
            return Err(error("user names in it are not supported"));
        }
        if uri.path() != "/" || uri.query().is_some() {
            return Err(error("a path in it is not supported"));
        }
        let host = authority.host().trim_matches(['[', ']']).to_ascii_lowercase();
        if host.is_empty() {
            return Err(error("it has no host"));
        }
        let tls = if scheme == "https" { Some(tls(&host, error)?) } else { None };
        let port = authority.port_u16().unwrap_or(if tls.is_some() { 443 } else { 80 });
        let authority = authority.as_str().to_ascii_lowercase();
        let host_header = HeaderValue::try_from(&authority).map_err(|_| error("bad host"))?;
        Ok(Origin { scheme, authority, host_header, host, port, tls })
    }

    /// Opens a stream. The caller limits the time.
    pub(crate) async fn connect(&self) -> Result<Stream, FetchError> {
        let tcp = TcpStream::connect((self.host.as_str(), self.port))
            .await
            .map_err(|_| FetchError::Connect)?;
        // Without it small requests wait; failing to set it only costs time.
        let _ = tcp.set_nodelay(true);
        let Some((connector, name)) = &self.tls else { return Ok(Stream::Plain(tcp)) };
        let tls = connector.connect(name.clone(), tcp).await.map_err(|_| FetchError::Tls)?;
        Ok(Stream::Tls(Box::new(tls)))
    }
}

fn tls(
    host: &str,
    error: impl Fn(&'static str) -> ProxyError,
) -> Result<(TlsConnector, ServerName<'static>), ProxyError> {
    let name = ServerName::try_from(host.to_owned()).map_err(|_| error("bad host name"))?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(ProxyError::Certificates);
    }
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|_| ProxyError::Certificates)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok((TlsConnector::from(Arc::new(config)), name))
}

/// A byte stream to the origin.
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        for (url, authority) in [
            ("http://Example.org", Some("example.org")),
            ("http://127.0.0.1:8080/", Some("127.0.0.1:8080")),
            ("http://[::1]:81", Some("[::1]:81")),
            ("ftp://example.org", None),
            ("example.org", None),
            ("http://user@example.org", None),
            ("http://example.org/path", None),
            ("http://", None),
        ] {
            let parsed = Origin::parse(url).ok().map(|origin| origin.authority);
            assert_eq!(parsed.as_deref(), authority, "{url}");
        }
    }
}
