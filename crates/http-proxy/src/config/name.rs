//! The name of this cache: its syntax, and its `Via` values. Pure.

use http::Version;
use http::header::HeaderValue;

use crate::error::ProxyError;

/// Accepts tokens of both RFC 8941 and HTTP, without the rarer characters.
pub(crate) fn check_name(name: &str) -> Result<(), ProxyError> {
    let good = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    if good { Ok(()) } else { Err(ProxyError::Name(name.to_owned())) }
}

/// Values of `Via`, by the protocol in which a message was received (RFC 9110 §7.6.3).
pub(crate) struct Via {
    http1_0: HeaderValue,
    http1_1: HeaderValue,
    http2: HeaderValue,
}

impl Via {
    /// The values for a cache of this name.
    pub(crate) fn of(name: &str) -> Result<Via, ProxyError> {
        let value = |protocol: &str| {
            HeaderValue::try_from(format!("{protocol} {name}"))
                .map_err(|_| ProxyError::Name(name.to_owned()))
        };
        Ok(Via { http1_0: value("1.0")?, http1_1: value("1.1")?, http2: value("2.0")? })
    }

    /// The value for a message received in this version.
    pub(crate) fn received(&self, version: Version) -> HeaderValue {
        match version {
            Version::HTTP_09 | Version::HTTP_10 => self.http1_0.clone(),
            Version::HTTP_2 => self.http2.clone(),
            // hyper supports no newer version.
            _ => self.http1_1.clone(),
        }
    }
}
