//! Which certificate a client gets: the first that is valid for the name it asks for (SNI, RFC 6066
//! §3), else the first of all.
//!
//! Invariant: the names are those that clients will accept it for (RFC 9525): a wildcard stands for
//! one label. A handshake costs the same however many certificates there are. Threads: all workers.

use std::collections::HashMap;
use std::sync::Arc;

use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use webpki::EndEntityCert;

/// Certificates by name.
#[derive(Debug)]
pub(super) struct BySni {
    keys: Vec<Arc<CertifiedKey>>,
    /// In lower case; a wildcard as `*.example.org`. The first certificate that has the name.
    by_name: HashMap<Box<str>, usize>,
}

impl BySni {
    pub(super) fn of(keys: Vec<Arc<CertifiedKey>>) -> BySni {
        let mut by_name = HashMap::new();
        for (place, key) in keys.iter().enumerate() {
            // One that cannot be parsed has no names; it may still be the first.
            let parsed =
                key.end_entity_cert().ok().and_then(|der| EndEntityCert::try_from(der).ok());
            for name in parsed.iter().flat_map(|certificate| certificate.valid_dns_names()) {
                let name = name.to_ascii_lowercase().into_boxed_str();
                by_name.entry(name).or_insert(place);
            }
        }
        BySni { keys, by_name }
    }

    /// Whether it has every name that the other has, of whichever certificates.
    pub(super) fn has_all_names_of(&self, other: &BySni) -> bool {
        other.by_name.keys().all(|name| self.by_name.contains_key(name))
    }

    /// The place of the first certificate for a name; 0 if there is none.
    fn place(&self, name: &str) -> usize {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        let exact = self.by_name.get(&*name);
        let parent = name.split_once('.').map(|(_, parent)| format!("*.{parent}"));
        let wild = parent.and_then(|wildcard| self.by_name.get(&*wildcard));
        exact.into_iter().chain(wild).min().copied().unwrap_or_default()
    }
}

/// The first name that a certificate is for.
pub(super) fn first_name(key: &CertifiedKey) -> Option<String> {
    let parsed = EndEntityCert::try_from(key.end_entity_cert().ok()?).ok()?;
    parsed.valid_dns_names().next().map(str::to_ascii_lowercase)
}

impl ResolvesServerCert for BySni {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let place = hello.server_name().map_or(0, |name| self.place(name));
        self.keys.get(place).cloned()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};
    use tokio_rustls::rustls::client::verify_server_name;
    use tokio_rustls::rustls::crypto::ring::sign::any_supported_type;
    use tokio_rustls::rustls::pki_types::{PrivateKeyDer, ServerName};
    use tokio_rustls::rustls::server::ParsedCertificate;

    use super::*;

    fn certified(names: &[&str]) -> Arc<CertifiedKey> {
        let pair = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let certificate = CertificateParams::new(names).unwrap().self_signed(&pair).unwrap();
        let key = PrivateKeyDer::try_from(pair.serialize_der()).unwrap();
        let key = any_supported_type(&key).unwrap();
        Arc::new(CertifiedKey::new(vec![certificate.der().clone()], key))
    }

    /// What clients do to verify it, for each certificate in turn.
    fn first_that_verifies(keys: &[Arc<CertifiedKey>], name: &str) -> usize {
        let name = ServerName::try_from(name).unwrap();
        let verifies = |key: &Arc<CertifiedKey>| {
            let certificate = key.end_entity_cert().and_then(ParsedCertificate::try_from).unwrap();
            verify_server_name(&certificate, &name).is_ok()
        };
        keys.iter().position(verifies).unwrap_or(0)
    }

    #[test]
    fn the_first_certificate_that_a_client_accepts_is_chosen() {
        let keys = vec![
            certified(&["first.test", "192.0.2.1"]),
            certified(&["*.wild.test", "Upper.Test"]),
            certified(&["a.wild.test", "both.test"]),
            certified(&["both.test", "wild.test", "*.a.wild.test"]),
            certified(&[]),
        ];
        let by_sni = BySni::of(keys.clone());
        let mut seen = Vec::new();
        for name in [
            "first.test",
            "a.wild.test",
            "b.wild.test",
            "A.WILD.test",
            "wild.test",
            "x.a.wild.test",
            "x.y.wild.test",
            "upper.test",
            "both.test",
            "other.test",
            "test",
            "x.first.test",
        ] {
            let place = by_sni.place(name);
            assert_eq!(place, first_that_verifies(&keys, name), "{name}");
            seen.push(place);
        }
        assert!((0..4).all(|place| seen.contains(&place)), "{seen:?}");
        assert_eq!(by_sni.place("both.test."), 2);
    }
}
