//! Who a client of the forward proxy is: `Proxy-Authorization: Basic` (RFC 7617) against a file of
//! names and Argon2 hashes.
//!
//! A hash is slow on purpose, so credentials that proved right are remembered for [`REMEMBERED`],
//! under a keyed hash and not as they are; and hashes are computed [`HASHES_AT_ONCE`] at most, so
//! that guessing cannot take the machine. Invariants: a wrong name costs as much as a wrong
//! password; the file is read again when it changes, and what was remembered is forgotten then.
//! Threads: shared by all workers; hashing runs on their blocking pools.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use argon2::Argon2;
use argon2::password_hash::{PasswordHash, PasswordHasher as _, PasswordVerifier as _, SaltString};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use http::header::PROXY_AUTHORIZATION;
use ring::hmac;
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::sync::Semaphore;

use crate::error::ProxyError;

/// How long right credentials need not be hashed again.
const REMEMBERED: Duration = Duration::from_secs(300);
/// Credentials remembered at most; beyond it all are forgotten.
const REMEMBERED_MAX: usize = 10_000;
/// Hashes computed at the same time.
const HASHES_AT_ONCE: usize = 2;
/// Shortest time between two looks at the file.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Longest name and password; longer ones are wrong without a look.
const CREDENTIALS_BYTES_MAX: usize = 1024;

/// Checks credentials.
pub(crate) struct Auth {
    path: PathBuf,
    state: Mutex<State>,
    key: hmac::Key,
    hashing: Semaphore,
    /// What the password of an unknown name is compared with.
    nobody: String,
}

struct State {
    users: Arc<HashMap<String, String>>,
    stamp: Option<(SystemTime, u64)>,
    looked: Instant,
    known: HashMap<[u8; 32], Instant>,
}

/// Makes a line of the file: `NAME:$argon2id$...`.
///
/// # Errors
/// When the name cannot stand in such a line, or the system has no randomness.
pub fn hash_credentials(name: &str, password: &str) -> Result<String, ProxyError> {
    if name.is_empty() || name.contains([':', '\n', '\r', '#']) {
        return Err(ProxyError::UserName(name.to_owned()));
    }
    let mut salt = [0; 16];
    SystemRandom::new().fill(&mut salt).map_err(|_| ProxyError::Randomness)?;
    Ok(format!("{name}:{}", hash(password, &salt).ok_or(ProxyError::Randomness)?))
}

fn hash(password: &str, salt: &[u8]) -> Option<String> {
    let salt = SaltString::encode_b64(salt).ok()?;
    Some(Argon2::default().hash_password(password.as_bytes(), &salt).ok()?.to_string())
}

fn read_users(path: &PathBuf) -> Result<HashMap<String, String>, ProxyError> {
    let error = |reason: String| ProxyError::UsersFile { path: path.clone(), reason };
    let text = fs::read_to_string(path).map_err(|source| error(source.to_string()))?;
    let mut users = HashMap::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let entry = line.trim_end().split_once(':');
        let good = entry.filter(|(name, hash)| !name.is_empty() && PasswordHash::new(hash).is_ok());
        let Some((name, hash)) = good else {
            return Err(error(format!("line {} is not NAME:$argon2id$...", index + 1)));
        };
        users.insert(name.to_owned(), hash.to_owned());
    }
    Ok(users)
}

impl Auth {
    pub(crate) fn load(path: PathBuf) -> Result<Auth, ProxyError> {
        let users = Arc::new(read_users(&path)?);
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        let stamp = stamp(&path);
        let state = State { users, stamp, looked: Instant::now(), known: HashMap::new() };
        Ok(Auth {
            path,
            state: Mutex::new(state),
            key: key.map_err(|_| ProxyError::Randomness)?,
            hashing: Semaphore::new(HASHES_AT_ONCE),
            nobody: hash("", &[0; 16]).ok_or(ProxyError::Randomness)?,
        })
    }

    /// Whether the request has credentials that are right.
    pub(crate) async fn admits(&self, headers: &HeaderMap) -> bool {
        let Some((name, password)) = credentials(headers) else { return false };
        let tag = self.tag(&name, &password);
        let users = {
            let mut state = self.state();
            self.refresh(&mut state);
            if state.known.get(&tag).is_some_and(|since| since.elapsed() < REMEMBERED) {
                return true;
            }
            state.users.clone()
        };
        let expected = users.get(&name).unwrap_or(&self.nobody).clone();
        let exists = users.contains_key(&name);
        let Ok(_turn) = self.hashing.acquire().await else { return false };
        let right = tokio::task::spawn_blocking(move || verify(&password, &expected)).await;
        if !exists || !right.unwrap_or(false) {
            return false;
        }
        let mut state = self.state();
        // Only if the file that was asked is still the one that holds.
        if Arc::ptr_eq(&state.users, &users) {
            if state.known.len() >= REMEMBERED_MAX {
                state.known.clear();
            }
            state.known.insert(tag, Instant::now());
        }
        true
    }

    fn tag(&self, name: &str, password: &str) -> [u8; 32] {
        // A name holds no colon, so that the two cannot be cut in another place.
        let tag = hmac::sign(&self.key, format!("{name}:{password}").as_bytes());
        let mut bytes = [0; 32];
        bytes.copy_from_slice(tag.as_ref());
        bytes
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the file again if it is another one; one that cannot be read changes nothing.
    fn refresh(&self, state: &mut State) {
        if state.looked.elapsed() < LOOK_INTERVAL {
            return;
        }
        state.looked = Instant::now();
        let stamp = stamp(&self.path);
        if stamp == state.stamp {
            return;
        }
        if let Ok(users) = read_users(&self.path) {
            state.stamp = stamp;
            state.users = Arc::new(users);
            state.known.clear();
        }
    }
}

fn stamp(path: &PathBuf) -> Option<(SystemTime, u64)> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

fn verify(password: &str, expected: &str) -> bool {
    PasswordHash::new(expected)
        .is_ok_and(|hash| Argon2::default().verify_password(password.as_bytes(), &hash).is_ok())
}

pub(crate) fn credentials(headers: &HeaderMap) -> Option<(String, String)> {
    let mut lines = headers.get_all(PROXY_AUTHORIZATION).iter();
    let (line, more) = (lines.next()?, lines.next());
    let text = line.to_str().ok().filter(|_| more.is_none())?;
    let (scheme, encoded) = text.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") || encoded.len() > CREDENTIALS_BYTES_MAX {
        return None;
    }
    let decoded = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (name, password) = decoded.split_once(':')?;
    Some((name.to_owned(), password.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &str, password: &str) -> HeaderMap {
        let value = format!("Basic {}", STANDARD.encode(format!("{name}:{password}")));
        let mut headers = HeaderMap::new();
        headers.insert(PROXY_AUTHORIZATION, value.parse().unwrap());
        headers
    }

    #[tokio::test]
    async fn right_credentials_are_remembered_until_the_file_changes() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("users");
        let line = hash_credentials("ann", "se:cret").unwrap();
        fs::write(&path, format!("# people\n\n{line}\n")).unwrap();
        let auth = Auth::load(path.clone()).unwrap();
        assert!(auth.admits(&headers("ann", "se:cret")).await);
        assert_eq!(auth.state().known.len(), 1);
        assert!(auth.admits(&headers("ann", "se:cret")).await);
        for (name, password) in [("ann", "secret"), ("bob", "se:cret"), ("", ""), ("bob", "")] {
            assert!(!auth.admits(&headers(name, password)).await, "{name} {password}");
        }
        assert_eq!(auth.state().known.len(), 1);
        fs::write(&path, hash_credentials("bob", "other").unwrap()).unwrap();
        auth.state().looked -= LOOK_INTERVAL;
        assert!(!auth.admits(&headers("ann", "se:cret")).await);
        assert!(auth.admits(&headers("bob", "other")).await);
    }

    #[test]
    fn files_that_are_none_are_refused() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("users");
        assert!(Auth::load(path.clone()).is_err());
        for text in ["ann", "ann:plain", ":$argon2id$", "ann:{SHA}x"] {
            fs::write(&path, text).unwrap();
            assert!(Auth::load(path.clone()).is_err(), "{text}");
        }
        assert!(hash_credentials("a:b", "x").is_err());
    }
}
