//! Authentication of the forward proxy's clients: `Proxy-Authorization: Basic` (RFC 7617) against a
//! file of names and Argon2 hashes.
//!
//! Hashing is slow on purpose. So verified credentials are remembered, under a keyed hash rather
//! than in clear text, until they have not been used for [`REMEMBERED`]; and only few hashes are
//! computed or waited for at a time (`checks`), so that guessing cannot exhaust the machine.
//! Invariants: an unknown name costs as much as a wrong password; the file is reread when it
//! changes, and credentials verified against a line that has changed no longer count. Threads:
//! shared by all workers; dedicated threads compute hashes.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::PROXY_AUTHORIZATION;
use http::{HeaderMap, StatusCode};
use ring::hmac;
use ring::rand::SystemRandom;

use crate::error::{ProxyError, Refusal, refusal};
use crate::forward::checks::{CheckLimits, Checks, Full, HASHES_AT_ONCE, Tag};
use crate::forward::users::{self, Hash, Users};
use crate::io::file_stamp::{FileStamp, Reported, file_stamp};
use crate::io::locks::lock;
use crate::metrics::Counters;
use crate::say::say;

/// How long verified credentials that are not used need not be hashed again.
const REMEMBERED: Duration = Duration::from_secs(300);
/// Maximum number of remembered credentials; beyond it all are forgotten.
const REMEMBERED_MAX: usize = 10_000;
/// Shortest time between two checks of the file for changes.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Longest name and password; longer ones are rejected without hashing.
const CREDENTIALS_BYTES_MAX: usize = 1024;

const UNAUTHORIZED: Refusal = refusal(
    StatusCode::PROXY_AUTHENTICATION_REQUIRED,
    "unauthorized",
    "This proxy wants a name and a password.",
);
const CLIENT_BUSY: Refusal = refusal(
    StatusCode::TOO_MANY_REQUESTS,
    "password-checks",
    "Too many passwords of this client are being checked: try again in a moment.",
);
const BUSY: Refusal = refusal(
    StatusCode::SERVICE_UNAVAILABLE,
    "password-checks",
    "Too many passwords are being checked: try again in a moment.",
);

/// Authenticates clients.
pub(crate) struct Auth {
    path: PathBuf,
    file: Mutex<File>,
    known: Arc<Mutex<Known>>,
    key: hmac::Key,
    checks: Checks,
    /// Hash that passwords of unknown names are compared with, to spend the same time.
    nobody: Arc<Hash>,
}

/// The file as last read.
struct File {
    users: Users,
    /// That of the file that `users` were read from.
    stamp: Option<FileStamp>,
    reported: Reported<Option<FileStamp>>,
    looked: Instant,
}

/// Verified credentials, and when each was last used.
#[derive(Default)]
struct Known(HashMap<Tag, Instant>);

impl Known {
    /// Whether the credentials are remembered; if so, renews them.
    fn uses(&mut self, tag: &Tag) -> bool {
        match self.0.get_mut(tag) {
            Some(used) if used.elapsed() < REMEMBERED => {
                *used = Instant::now();
                true
            }
            _ => false,
        }
    }

    fn add(&mut self, tag: Tag) {
        if self.0.len() >= REMEMBERED_MAX {
            self.0.retain(|_, used| used.elapsed() < REMEMBERED);
        }
        if self.0.len() >= REMEMBERED_MAX {
            self.0.clear();
        }
        self.0.insert(tag, Instant::now());
    }
}

impl Auth {
    /// Reads the file; every line must be valid.
    pub(crate) fn load(path: PathBuf, limits: CheckLimits) -> Result<Auth, ProxyError> {
        // Taken before reading: a change during the read causes another read.
        let stamp = file_stamp(&path);
        let read = users::read(&path)?;
        if let Some(wrong) = read.wrong {
            return Err(wrong);
        }
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        Ok(Auth {
            path,
            file: Mutex::new(File {
                users: read.users,
                stamp,
                reported: Reported::default(),
                looked: Instant::now(),
            }),
            known: Arc::default(),
            key: key.map_err(|_| ProxyError::Randomness)?,
            checks: Checks::start(limits, HASHES_AT_ONCE)?,
            nobody: Arc::new(Hash::of_nobody()?),
        })
    }

    /// Admits clients whose credentials are right.
    pub(crate) async fn admits(
        &self,
        headers: &HeaderMap,
        client: IpAddr,
        counters: &Counters,
    ) -> Result<(), Refusal> {
        let refused = |refusal| {
            counters.forward_unauthorized.one();
            Err(refusal)
        };
        let Some((name, password)) = credentials(headers) else { return refused(UNAUTHORIZED) };
        let expected = self.user(&name, counters);
        let exists = expected.is_some();
        let hash = expected.unwrap_or_else(|| self.nobody.clone());
        let tag = self.tag(&hash, &name, &password);
        if lock(&self.known).uses(&tag) {
            return Ok(());
        }
        let known = self.known.clone();
        let remember = move |right: bool| {
            if right && exists {
                lock(&known).add(tag);
            }
        };
        let mut outcome = match self.checks.check((tag, client), (password, hash), remember) {
            Ok(outcome) => outcome,
            Err(full) => {
                counters.forward_checks_refused.one();
                return Err(if full == Full::Client { CLIENT_BUSY } else { BUSY });
            }
        };
        let right = outcome.wait_for(Option::is_some).await.is_ok_and(|right| *right == Some(true));
        if right && exists { Ok(()) } else { refused(UNAUTHORIZED) }
    }

    /// A tag of name, password and the hash they are compared with: it changes when the file's line
    /// does.
    fn tag(&self, hash: &Hash, name: &str, password: &str) -> Tag {
        // A hash contains no space and a name no colon, so the encoding is unambiguous.
        let text = format!("{} {name}:{password}", hash.text());
        let tag = hmac::sign(&self.key, text.as_bytes());
        let mut bytes = [0; 32];
        bytes.copy_from_slice(tag.as_ref());
        bytes
    }

    /// The hash of this name in the current file.
    fn user(&self, name: &str, counters: &Counters) -> Option<Arc<Hash>> {
        let mut file = lock(&self.file);
        if file.looked.elapsed() >= LOOK_INTERVAL {
            file.looked = Instant::now();
            self.refresh(&mut file, counters);
        }
        file.users.get(name).cloned()
    }

    /// Rereads the file if it has changed. Invalid lines are skipped, so that removing a user takes
    /// effect in any case; a file that cannot be read at all changes nothing, and is read again
    /// each time: what was wrong, such as missing permissions, may be cured without leaving a trace
    /// in its stamp. Either is reported once per change.
    fn refresh(&self, file: &mut File, counters: &Counters) {
        let stamp = file_stamp(&self.path);
        if stamp == file.stamp {
            return;
        }
        let wrong = match users::read(&self.path) {
            Ok(read) => {
                (file.users, file.stamp, file.reported) = (read.users, stamp, Reported::default());
                read.wrong
                    .map(|wrong| format!("a line of the changed users file is left out: {wrong}"))
            }
            Err(error) => file
                .reported
                .is_new(stamp, &error)
                .then(|| format!("the changed users file is left out, the former stay: {error}")),
        };
        if let Some(wrong) = wrong {
            say(format_args!("damelo: {wrong}"));
            counters.users_file_errors.one();
        }
    }
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
    use crate::forward::users::hash_credentials;
    use std::fs;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    fn headers(name: &str, password: &str) -> HeaderMap {
        let value = format!("Basic {}", STANDARD.encode(format!("{name}:{password}")));
        let mut headers = HeaderMap::new();
        headers.insert(PROXY_AUTHORIZATION, value.parse().unwrap());
        headers
    }

    struct Scene {
        _home: tempfile::TempDir,
        auth: Auth,
        counters: Counters,
    }

    impl Scene {
        fn new(lines: &str) -> Scene {
            let home = tempfile::tempdir().unwrap();
            let path = home.path().join("users");
            fs::write(&path, lines).unwrap();
            let auth = Auth::load(path, CheckLimits::default()).unwrap();
            Scene { _home: home, auth, counters: Counters::default() }
        }

        async fn admits(&self, name: &str, password: &str) -> bool {
            let headers = headers(name, password);
            let admitted = self.auth.admits(&headers, CLIENT, &self.counters).await;
            assert!(admitted.is_ok() || admitted == Err(UNAUTHORIZED));
            admitted.is_ok()
        }

        /// Makes the next check of the file due.
        fn look_again(&self) {
            lock(&self.auth.file).looked -= LOOK_INTERVAL;
        }

        fn rewrite(&self, lines: &str) {
            fs::write(&self.auth.path, lines).unwrap();
            self.look_again();
        }

        fn known(&self) -> usize {
            lock(&self.auth.known).0.len()
        }
    }

    #[tokio::test]
    async fn right_credentials_are_remembered_until_their_line_changes() {
        let (ann, bob) =
            (hash_credentials("ann", "se:cret").unwrap(), hash_credentials("bob", "o").unwrap());
        let scene = Scene::new(&format!("# people\n\n{ann}\n{bob}\n"));
        assert!(scene.admits("ann", "se:cret").await);
        assert!(scene.admits("ann", "se:cret").await);
        assert_eq!(scene.known(), 1);
        for (name, password) in [("ann", "secret"), ("joe", "se:cret"), ("", ""), ("joe", "")] {
            assert!(!scene.admits(name, password).await, "{name} {password}");
        }
        assert!(scene.admits("bob", "o").await);
        assert_eq!(scene.known(), 2);
        scene.rewrite(&bob);
        assert!(!scene.admits("ann", "se:cret").await);
        let again = headers("bob", "o");
        let mut asked = pin!(scene.auth.admits(&again, CLIENT, &scene.counters));
        let at_once = asked.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(at_once.is_ready(), "a line that stayed needs no new check");
    }

    #[tokio::test]
    async fn what_is_used_is_remembered_for_longer() {
        let scene = Scene::new(&hash_credentials("ann", "x").unwrap());
        assert!(scene.admits("ann", "x").await);
        let almost = Duration::from_secs(200);
        for _ in 0..2 {
            lock(&scene.auth.known).0.values_mut().for_each(|used| *used -= almost);
            let tags: Vec<Tag> = lock(&scene.auth.known).0.keys().copied().collect();
            assert!(lock(&scene.auth.known).uses(&tags[0]));
        }
        lock(&scene.auth.known).0.values_mut().for_each(|used| *used -= REMEMBERED);
        let tags: Vec<Tag> = lock(&scene.auth.known).0.keys().copied().collect();
        assert!(!lock(&scene.auth.known).uses(&tags[0]));
    }

    #[tokio::test]
    async fn guesses_that_are_dropped_hold_their_places() {
        let scene = Scene::new(&hash_credentials("ann", "x").unwrap());
        let ask = |password: String, client: IpAddr| {
            let headers = headers("ann", &password);
            let mut asked = pin!(scene.auth.admits(&headers, client, &scene.counters));
            // Polls once, and abandons the request.
            asked.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        };
        // Keeps all threads busy until dropped.
        let mut gates = Vec::new();
        for thread in 0..HASHES_AT_ONCE {
            let (gate, opened) = std::sync::mpsc::channel::<()>();
            gates.push(gate);
            let who = ([u8::try_from(thread).unwrap(); 32], IpAddr::from([192, 0, 2, 3]));
            let what = ("x".to_owned(), scene.auth.nobody.clone());
            scene.auth.checks.check(who, what, move |_| assert!(opened.recv().is_err())).unwrap();
        }
        let refused = Poll::Ready(Err(CLIENT_BUSY));
        let refused = (0..200).filter(|guess| ask(guess.to_string(), CLIENT) == refused).count();
        assert_eq!(refused, 200 - CheckLimits::default().per_client_max);
        assert_eq!(scene.counters.forward_checks_refused.get(), refused as u64);
        let other = IpAddr::from([192, 0, 2, 2]);
        assert!(ask("x".to_owned(), other).is_pending(), "others have places of their own");
    }

    #[tokio::test]
    async fn a_bad_line_is_told_once_and_the_others_count() {
        let (ann, bob) =
            (hash_credentials("ann", "a").unwrap(), hash_credentials("bob", "b").unwrap());
        let scene = Scene::new(&format!("{ann}\n{bob}\n"));
        scene.rewrite(&format!("ben\n{bob}\n"));
        assert!(!scene.admits("ann", "a").await, "who was taken out is out");
        assert!(scene.admits("bob", "b").await);
        scene.look_again();
        assert!(scene.admits("bob", "b").await);
        assert_eq!(scene.counters.users_file_errors.get(), 1);
        fs::remove_file(&scene.auth.path).unwrap();
        for _ in 0..2 {
            scene.look_again();
            assert!(scene.admits("bob", "b").await, "the former stay");
        }
        assert_eq!(scene.counters.users_file_errors.get(), 2);
        scene.rewrite(&ann);
        assert!(scene.admits("ann", "a").await && !scene.admits("bob", "b").await);
        assert_eq!(scene.counters.users_file_errors.get(), 2);
    }

    #[tokio::test]
    async fn a_file_that_could_not_be_read_is_read_again_though_it_looks_the_same() {
        let (ann, bob) =
            (hash_credentials("ann", "a").unwrap(), hash_credentials("bob", "b").unwrap());
        let scene = Scene::new(&ann);
        // Such as a file of somebody else until a `chown`, which changes neither length nor time.
        fs::write(&scene.auth.path, vec![0xff; bob.len()]).unwrap();
        let written = fs::metadata(&scene.auth.path).unwrap().modified().unwrap();
        for _ in 0..2 {
            scene.look_again();
            assert!(scene.admits("ann", "a").await, "the former stay");
        }
        fs::write(&scene.auth.path, bob).unwrap();
        let file = fs::File::options().write(true).open(&scene.auth.path).unwrap();
        file.set_modified(written).unwrap();
        scene.look_again();
        assert!(scene.admits("bob", "b").await && !scene.admits("ann", "a").await);
        assert_eq!(scene.counters.users_file_errors.get(), 1, "told once");
    }

    #[test]
    fn a_proxy_does_not_start_with_a_bad_line() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("users");
        assert!(Auth::load(path.clone(), CheckLimits::default()).is_err());
        fs::write(&path, format!("{}\nann\n", hash_credentials("bob", "x").unwrap())).unwrap();
        let error = Auth::load(path, CheckLimits::default()).err().unwrap();
        assert!(error.to_string().contains("line 2"), "{error}");
    }
}
