//! Credentials that authenticate a connection instead of a request (NTLM, Negotiate, Kerberos): the
//! origin attributes all later requests on that connection to the same user (RFC 4559 §6).
//!
//! Invariants: a connection on which such credentials were sent or requested never returns to a
//! shared pool; only the client connection that sent them may use it again. Threads: a pin belongs
//! to one client connection, and so to one worker.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderName, WWW_AUTHENTICATE};

use crate::io::locks::lock;
use crate::rules::list_members;
use crate::upstream::pool::{Http1, Pool};

/// Authentication schemes whose result a server may remember for the whole connection.
const SCHEMES: [&[u8]; 4] = [b"ntlm", b"negotiate", b"kerberos", b"nego2"];

/// True if a request carries credentials that may authenticate its connection.
pub(crate) fn are_shown(request: &HeaderMap) -> bool {
    names_scheme(request, &AUTHORIZATION)
}

/// True if a response asks for such credentials or continues their handshake.
pub(crate) fn are_wanted(response: &HeaderMap) -> bool {
    names_scheme(response, &WWW_AUTHENTICATE)
}

fn names_scheme(headers: &HeaderMap, field: &HeaderName) -> bool {
    // A quoted comma may cause a false match, which only closes a connection needlessly.
    headers.contains_key(field) && list_members(headers, field).any(begins_with_scheme)
}

fn begins_with_scheme(challenge: &[u8]) -> bool {
    let name = challenge.split(|byte| byte.is_ascii_whitespace()).next().unwrap_or_default();
    SCHEMES.iter().any(|scheme| name.eq_ignore_ascii_case(scheme))
}

/// Marks a request that must not share its origin connection with other clients. With a pin, its
/// client keeps that connection for later requests.
#[derive(Debug, Clone)]
pub(crate) struct Pinned(pub(crate) Option<Arc<Pin>>);

/// The origin connection that belongs to one client connection.
#[derive(Default)]
pub(crate) struct Pin {
    held: Mutex<Option<Held>>,
}

struct Held {
    pool: Pool,
    connection: Http1,
}

impl Pin {
    fn held(&self) -> MutexGuard<'_, Option<Held>> {
        lock(&self.held)
    }

    /// Whether it holds an open connection of this pool.
    pub(super) fn is_of(&self, pool: &Pool) -> bool {
        self.held().as_ref().is_some_and(|held| held.is_of(pool))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held().is_none()
    }
}

impl Held {
    fn is_of(&self, pool: &Pool) -> bool {
        self.pool.is(pool) && !self.connection.is_closed()
    }
}

impl Pinned {
    /// Takes the client's own connection, if it is open and belongs to `pool`.
    pub(super) fn take(&self, pool: &Pool) -> Option<Http1> {
        let taken = self.0.as_ref()?.held().take_if(|held| held.is_of(pool))?;
        Some(taken.connection)
    }

    /// Keeps the connection for the client and closes the one held before. Without a pin the
    /// connection closes.
    pub(super) fn put(self, pool: Pool, connection: Http1) {
        if let Some(pin) = self.0 {
            *pin.held() = Some(Held { pool, connection });
        }
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pin")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn schemes_of_connections() {
        for (lines, expected) in [
            (&["NTLM"][..], true),
            (&["ntlm TlRMTVNTUAAB"], true),
            (&["Negotiate YII="], true),
            (&["Kerberos"], true),
            (&["Basic realm=\"x\"", "NTLM"], true),
            (&["Basic realm=\"x\", Negotiate"], true),
            (&["Basic TlRMTQ=="], false),
            (&["Digest realm=\"NTLM\""], false),
            (&["Bearer ntlm"], false),
            (&[""], false),
            (&[], false),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(WWW_AUTHENTICATE, HeaderValue::from_static(line));
                headers.append(AUTHORIZATION, HeaderValue::from_static(line));
            }
            assert_eq!(are_wanted(&headers), expected, "{lines:?}");
            assert_eq!(are_shown(&headers), expected, "{lines:?}");
        }
    }
}
