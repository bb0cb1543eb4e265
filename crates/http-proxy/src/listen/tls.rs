//! TLS towards clients: certificates from files, read again when the files change.
//!
//! Invariants: certificates that are unusable at start fail the start; one that becomes unusable
//! later is counted, and its former one stays in use, while the others follow their files. TLS 1.2
//! and 1.3, ring, ALPN `h2` and `http/1.1`. Sessions are resumed by tickets (RFC 8446 §4.6.1, RFC
//! 5077) that clients keep; their keys, which change by themselves, outlive the certificates: a
//! client proves by one that it spoke with this proxy, which no certificate changes. Only where a
//! name is no longer served they go, since a session that is resumed is not held against the
//! certificates. Threads: handshakes take what is served without a lock; who looks at the files
//! may wait for a disk, and holds up nobody but others who look.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio_rustls::rustls::crypto::ring::{Ticketer, default_provider, sign::any_supported_type};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::ProducesTickets;
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{self, ServerConfig};

use crate::config::transport::CertificateFiles;
use crate::error::ProxyError;
use crate::io::file_stamp::{FileStamp, Reported, file_stamp};
use crate::io::locks::lock;
use crate::listen::expiry::not_after_s;
use crate::listen::sni::{BySni, first_name};

/// Time between two looks at the files.
pub(super) const FOLLOW_INTERVAL: Duration = Duration::from_secs(1);

/// Supplies the TLS configuration of each handshake.
pub(crate) struct Certificates {
    served: ArcSwap<Served>,
    /// Held while the files are looked at.
    followed: Mutex<Followed>,
}

/// What handshakes and metrics go by.
struct Served {
    config: Arc<ServerConfig>,
    by_sni: Arc<BySni>,
    /// See [`Certificates::ends`].
    ends: Vec<(String, u64)>,
}

struct Followed {
    pairs: Vec<Pair>,
    /// Whether one of `pairs` is not served yet.
    outdated: bool,
}

/// A certificate, and the files it comes from.
struct Pair {
    files: CertificateFiles,
    key: Arc<CertifiedKey>,
    /// Those of the files that `key` was read from.
    stamps: Stamps,
    reported: Reported<Stamps>,
}

/// Of chain and key.
type Stamps = [Option<FileStamp>; 2];

impl Certificates {
    /// Reads all files. Tickets of those that were served before stay good, if all their names are
    /// still served.
    pub(crate) fn load(
        files: Vec<CertificateFiles>,
        former: Option<&Certificates>,
    ) -> Result<Certificates, ProxyError> {
        let pairs = files.into_iter().map(Pair::load).collect::<Result<Vec<_>, _>>()?;
        let former = former.map(|former| former.served.load_full());
        let served = Served::of(&pairs, former.as_deref())?;
        let followed = Mutex::new(Followed { pairs, outdated: false });
        Ok(Certificates { served: ArcSwap::from_pointee(served), followed })
    }

    /// The configuration of a handshake.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        self.served.load().config.clone()
    }

    /// The end of each, of the shortest-lived in its chain, by the first name that it is for, or
    /// else its file.
    pub(crate) fn ends(&self) -> Vec<(String, u64)> {
        self.served.load().ends.clone()
    }

    /// Serves what the files say now. Returns an error for each pair of them that has changed and
    /// is unusable: its former certificate stays. Not for an event loop: it waits for disks.
    pub(crate) fn look(&self) -> Vec<ProxyError> {
        let mut followed = lock(&self.followed);
        let Followed { pairs, outdated } = &mut *followed;
        let mut errors = Vec::new();
        for pair in pairs.iter_mut() {
            match pair.refresh() {
                Ok(changed) => *outdated |= changed,
                Err(error) => errors.extend(error),
            }
        }
        if *outdated {
            match Served::of(pairs, Some(&self.served.load())) {
                Ok(served) => {
                    self.served.store(Arc::new(served));
                    *outdated = false;
                }
                Err(error) => errors.push(error),
            }
        }
        errors
    }
}

impl Served {
    fn of(pairs: &[Pair], former: Option<&Served>) -> Result<Served, ProxyError> {
        let by_sni = Arc::new(BySni::of(pairs.iter().map(|pair| pair.key.clone()).collect()));
        let former = former.filter(|former| by_sni.has_all_names_of(&former.by_sni));
        let tickets = match former {
            Some(former) => former.config.ticketer.clone(),
            None => Ticketer::new().map_err(ProxyError::Tls)?,
        };
        let config = server_config(by_sni.clone(), tickets)?;
        Ok(Served { config, by_sni, ends: ends(pairs) })
    }
}

fn ends(pairs: &[Pair]) -> Vec<(String, u64)> {
    let mut ends = BTreeMap::new();
    for pair in pairs {
        let chain = pair.key.cert.iter();
        let Some(end_s) = chain.filter_map(|der| not_after_s(der)).min() else { continue };
        let name = first_name(&pair.key);
        let name = name.unwrap_or_else(|| pair.files.chain.display().to_string());
        let known = ends.entry(name).or_insert(end_s);
        *known = end_s.min(*known);
    }
    ends.into_iter().collect()
}

impl Pair {
    fn load(files: CertificateFiles) -> Result<Pair, ProxyError> {
        // Taken before reading: a change during the read causes another read.
        let stamps = stamps(&files);
        let key = certified_key(&files)?;
        Ok(Pair { files, key, stamps, reported: Reported::default() })
    }

    /// Reads the files again unless they are the ones in use. Returns whether the certificate has
    /// changed; of an error only what was not reported yet.
    ///
    /// Files that were unusable are read again each time: what was wrong may be cured without
    /// leaving a trace in their stamps, such as missing permissions or a lack of descriptors.
    fn refresh(&mut self) -> Result<bool, Option<ProxyError>> {
        let stamps = stamps(&self.files);
        if stamps == self.stamps {
            return Ok(false);
        }
        match certified_key(&self.files) {
            Ok(key) => {
                (self.key, self.stamps, self.reported) = (key, stamps, Reported::default());
                Ok(true)
            }
            Err(error) => Err(self.reported.is_new(stamps, &error).then_some(error)),
        }
    }
}

fn stamps(files: &CertificateFiles) -> Stamps {
    [file_stamp(&files.chain), file_stamp(&files.key)]
}

fn server_config(
    by_sni: Arc<BySni>,
    tickets: Arc<dyn ProducesTickets>,
) -> Result<Arc<ServerConfig>, ProxyError> {
    let provider = Arc::new(default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(ProxyError::Tls)?
        .with_no_client_auth()
        .with_cert_resolver(by_sni);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // A server-side session cache would hold only the latest few hundred clients.
    config.ticketer = tickets;
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
