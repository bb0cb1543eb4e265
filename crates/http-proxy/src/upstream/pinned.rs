//! Credentials that count for a connection and not for a request (NTLM, Negotiate, Kerberos): the
//! origin takes whatever comes on that connection later for the same user's (RFC 4559 §6).
//!
//! Invariants: a connection that such credentials were sent on, or asked for on, never goes back to
//! a shared pool; who may use it again is the client's connection that they came on, and nobody else.
//! Threads: a pin belongs to one connection of a client, and so to one worker.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderName, WWW_AUTHENTICATE};

use crate::io::locks::lock;
use crate::rules::list_members;
use crate::upstream::pool::{Http1, Pool};

/// Schemes of which a server may remember the outcome for a connection.
const SCHEMES: [&[u8]; 4] = [b"ntlm", b"negotiate", b"kerberos", b"nego2"];

/// True if a request shows credentials that may count for its connection.
pub(crate) fn are_shown(request: &HeaderMap) -> bool {
    names_scheme(request, &AUTHORIZATION)
}

/// True if a response asks for such credentials, or answers them.
pub(crate) fn are_wanted(response: &HeaderMap) -> bool {
    names_scheme(response, &WWW_AUTHENTICATE)
}

fn names_scheme(headers: &HeaderMap, field: &HeaderName) -> bool {
    // A comma within quotes may make a scheme of what is none: then a connection closes in vain.
    headers.contains_key(field) && list_members(headers, field).any(begins_with_scheme)
}

fn begins_with_scheme(challenge: &[u8]) -> bool {
    let name = challenge.split(|byte| byte.is_ascii_whitespace()).next().unwrap_or_default();
    SCHEMES.iter().any(|scheme| name.eq_ignore_ascii_case(scheme))
}

/// Said of a request: it shares its connection to the origin with no other client's. With a pin that
/// connection stays its client's.
#[derive(Debug, Clone)]
pub(crate) struct Pinned(pub(crate) Option<Arc<Pin>>);

/// The connection to an origin that belongs to one connection of a client.
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

    /// Whether it holds a connection of this pool's endpoint that still lives.
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
    /// The client's own connection to where `pool` leads.
    pub(super) fn take(&self, pool: &Pool) -> Option<Http1> {
        let taken = self.0.as_ref()?.held().take_if(|held| held.is_of(pool))?;
        Some(taken.connection)
    }

    /// Keeps the connection for the client; one to somewhere else closes. Without a pin it closes.
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
