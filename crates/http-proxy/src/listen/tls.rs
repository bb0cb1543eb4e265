//! TLS towards clients: certificates from files, reloaded when the files change.
//!
//! Invariants: certificates that are unusable at start fail the start; those that become unusable
//! later are counted, and the former ones stay in use. TLS 1.2 and 1.3, ring, ALPN `h2` and
//! `http/1.1`. Sessions are resumed by tickets (RFC 8446 §4.6.1, RFC 5077) that clients keep and
//! that only the current configuration can decrypt; new certificates come with new ticket keys.
//! Threads: shared by all workers; the worker that performs a handshake checks the files, at most
//! once per [`LOOK_INTERVAL`].

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio_rustls::rustls::client::verify_server_name;
use tokio_rustls::rustls::crypto::ring::{Ticketer, default_provider, sign::any_supported_type};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{self, ServerConfig};

use crate::config::transport::CertificateFiles;
use crate::error::ProxyError;
use crate::io::file_stamp::{FileStamp, file_stamp};
use crate::io::locks::lock;

/// Shortest time between two checks of the files.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Supplies the TLS configuration of each handshake.
pub(crate) struct Certificates {
    files: Vec<CertificateFiles>,
    current: Mutex<Current>,
}

struct Current {
    config: Arc<ServerConfig>,
    stamps: Vec<Option<FileStamp>>,
    looked: Instant,
}

impl Certificates {
    pub(crate) fn load(files: Vec<CertificateFiles>) -> Result<Certificates, ProxyError> {
        let stamps = stamps(&files);
        let config = server_config(&files)?;
        let current = Mutex::new(Current { config, stamps, looked: Instant::now() });
        Ok(Certificates { files, current })
    }

    /// The configuration for the current files. With an error beside it, if they have changed and
    /// are unusable; then it is the former one.
    pub(crate) fn config(&self) -> (Arc<ServerConfig>, Result<(), ProxyError>) {
        let mut current = lock(&self.current);
        if current.looked.elapsed() < LOOK_INTERVAL {
            return (current.config.clone(), Ok(()));
        }
        current.looked = Instant::now();
        let stamps = stamps(&self.files);
        if stamps == current.stamps {
            return (current.config.clone(), Ok(()));
        }
        // Chain and key are two files: a check between their two writes finds a mismatch, and the
        // second write's stamp triggers another check.
        current.stamps = stamps;
        let result = server_config(&self.files).map(|config| current.config = config);
        (current.config.clone(), result)
    }
}

fn stamps(files: &[CertificateFiles]) -> Vec<Option<FileStamp>> {
    files.iter().flat_map(|files| [file_stamp(&files.chain), file_stamp(&files.key)]).collect()
}

fn server_config(files: &[CertificateFiles]) -> Result<Arc<ServerConfig>, ProxyError> {
    let keys = files.iter().map(certified_key).collect::<Result<Vec<_>, _>>()?;
    let provider = Arc::new(default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(ProxyError::Tls)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(BySni(keys)));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // A server-side session cache would hold only the latest few hundred clients.
    config.ticketer = Ticketer::new().map_err(ProxyError::Tls)?;
    Ok(Arc::new(config))
}

fn certified_key(files: &CertificateFiles) -> Result<Arc<CertifiedKey>, ProxyError> {
    let unreadable =
        |path: &Path, reason: String| ProxyError::CertificateFile { path: path.to_owned(), reason };
    let chain = CertificateDer::pem_file_iter(&files.chain)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unreadable(&files.chain, error.to_string()))?;
    if chain.is_empty() {
        return Err(unreadable(&files.chain, "it holds no certificate".to_owned()));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| unreadable(&files.key, error.to_string()))?;
    let key =
        any_supported_type(&key).map_err(|error| unreadable(&files.key, error.to_string()))?;
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {}
        Err(_) => {
            let reason = format!("it is not the key of `{}`", files.chain.display());
            return Err(unreadable(&files.key, reason));
        }
    }
    Ok(Arc::new(certified))
}

/// Selects the certificate that is valid for the requested name, else the first.
#[derive(Debug)]
struct BySni(Vec<Arc<CertifiedKey>>);

impl ResolvesServerCert for BySni {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let first = self.0.first();
        if self.0.len() < 2 {
            return first.cloned();
        }
        let name = hello.server_name().and_then(|name| ServerName::try_from(name).ok());
        let good = |key: &&Arc<CertifiedKey>| {
            let certificate = key.end_entity_cert().and_then(ParsedCertificate::try_from);
            match (&name, certificate) {
                (Some(name), Ok(certificate)) => verify_server_name(&certificate, name).is_ok(),
                _ => false,
            }
        };
        self.0.iter().find(good).or(first).cloned()
    }
}
