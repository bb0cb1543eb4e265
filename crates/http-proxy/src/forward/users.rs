//! The file of users: one line `NAME:$argon2id$...` per user.
//!
//! Invariant: every hash taken from the file can be checked; an invalid line is reported with its
//! number. No threads.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use argon2::password_hash::{Output, PasswordHash, PasswordHasher as _, SaltString};
use argon2::{Algorithm, Argon2, Block, Params, Version};
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::error::ProxyError;

/// Longest salt that a line can hold.
const SALT_BYTES_MAX: usize = 64;

/// All permitted users.
pub(crate) type Users = HashMap<String, Arc<Hash>>;

/// A password hash, with the parameters to compute it again.
pub(crate) struct Hash {
    text: String,
    argon2: Argon2<'static>,
    salt: Vec<u8>,
    output: Output,
}

/// Contents of a file.
pub(crate) struct UsersFile {
    /// Users of the valid lines.
    pub(crate) users: Users,
    /// The error of the first invalid line.
    pub(crate) wrong: Option<ProxyError>,
}

impl Hash {
    /// Parses a line's hash; `None` if it cannot be checked.
    fn parse(text: &str) -> Option<Hash> {
        let hash = PasswordHash::new(text).ok()?;
        let algorithm = Algorithm::try_from(hash.algorithm).ok()?;
        let version = match hash.version {
            Some(version) => Version::try_from(version).ok()?,
            None => Version::default(),
        };
        // The library multiplies what it has not compared with its limit yet.
        let lanes = hash.params.iter().filter(|(name, _)| name.as_str() == "p");
        if lanes.filter_map(|(_, value)| value.decimal().ok()).any(|p| p > Params::MAX_P_COST) {
            return None;
        }
        let params = Params::try_from(&hash).ok()?;
        let mut salt = [0; SALT_BYTES_MAX];
        let salt = hash.salt?.decode_b64(&mut salt).ok()?.to_vec();
        let argon2 = Argon2::new(algorithm, version, params);
        Some(Hash { text: text.to_owned(), argon2, salt, output: hash.hash? })
    }

    /// A hash that matches no password, to spend the time of a comparison.
    pub(crate) fn of_nobody() -> Result<Hash, ProxyError> {
        hash("", &[0; 16]).and_then(|text| Hash::parse(&text)).ok_or(ProxyError::Randomness)
    }

    /// The hash as written in the file.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether it is the hash of this password. `memory` grows as needed; the caller keeps it.
    pub(crate) fn is_of(&self, password: &str, memory: &mut Vec<Block>) -> bool {
        let blocks = self.argon2.params().block_count();
        if memory.len() < blocks {
            memory.resize(blocks, Block::default());
        }
        let computed = Output::init_with(self.output.len(), |output| {
            // The algorithm's result depends on the length of the memory it is given.
            let memory = &mut memory[..blocks];
            let password = password.as_bytes();
            self.argon2.hash_password_into_with_memory(password, &self.salt, output, memory)?;
            Ok(())
        });
        // Compares in constant time.
        computed.is_ok_and(|computed| computed == self.output)
    }
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

/// Reads a file; fails if it cannot be read at all.
pub(crate) fn read(path: &Path) -> Result<UsersFile, ProxyError> {
    let error = |reason: String| ProxyError::UsersFile { path: path.to_owned(), reason };
    let text = fs::read_to_string(path).map_err(|source| error(source.to_string()))?;
    let (users, wrong) = parse(&text);
    let wrong = wrong.first().map(|line| {
        let more = match wrong.len() {
            1 => String::new(),
            lines => format!(", nor are {} more", lines - 1),
        };
        error(format!("line {line} is not NAME:$argon2id$...{more}"))
    });
    Ok(UsersFile { users, wrong })
}

/// The users of the valid lines of a file, and the numbers of the others.
pub(crate) fn parse(text: &str) -> (Users, Vec<usize>) {
    let (mut users, mut wrong) = (Users::new(), Vec::new());
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let entry = line.trim_end().split_once(':').filter(|(name, _)| !name.is_empty());
        match entry.and_then(|(name, hash)| Some((name, Hash::parse(hash)?))) {
            Some((name, hash)) => drop(users.insert(name.to_owned(), Arc::new(hash))),
            None => wrong.push(index + 1),
        }
    }
    (users, wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_lines_count_and_bad_ones_are_named() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("users");
        assert!(read(&path).is_err());
        let ann = hash_credentials("ann", "x").unwrap();
        for text in
            ["ann", "bob:plain", ":$argon2id$", "bob:{SHA}x", "bob:$pbkdf2-sha256$i=1$c2FsdHNhbHQ"]
        {
            fs::write(&path, format!("# people\n{text}\n\n{ann}\n")).unwrap();
            let file = read(&path).unwrap();
            assert!(file.users.keys().eq(["ann"]), "{text}");
            assert!(file.wrong.unwrap().to_string().contains("line 2 is not"), "{text}");
        }
        for lanes in ["p=4000000000", "p=1,p=4000000000"] {
            let lanes = ann.replace("p=1", lanes);
            assert_eq!(parse(&format!("{ann}\n{lanes}")).1, [2], "{lanes}");
        }
        fs::write(&path, format!("a\nb\n{ann}\nc")).unwrap();
        let wrong = read(&path).unwrap().wrong.unwrap().to_string();
        assert!(wrong.contains("line 1 is not") && wrong.contains("nor are 2 more"), "{wrong}");
        fs::write(&path, ann).unwrap();
        assert!(read(&path).unwrap().wrong.is_none());
        assert!(hash_credentials("a:b", "x").is_err());
    }

    #[test]
    fn hashes_of_all_kinds_share_one_memory() {
        let mut memory = Vec::new();
        let salt = SaltString::encode_b64(b"a long salt").unwrap();
        // The largest first: the memory of the others is a part of it.
        for (algorithm, kib) in
            [(Algorithm::Argon2id, 512), (Algorithm::Argon2i, 64), (Algorithm::Argon2d, 256)]
        {
            let params = Params::new(kib, 1, 1, None).unwrap();
            let argon2 = Argon2::new(algorithm, Version::V0x13, params);
            let text = argon2.hash_password(b"open", &salt).unwrap().to_string();
            let hash = Hash::parse(&text).unwrap();
            assert!(hash.is_of("open", &mut memory), "{text}");
            assert!(!hash.is_of("wrong", &mut memory), "{text}");
            assert_eq!(memory.len(), 512);
        }
    }
}
