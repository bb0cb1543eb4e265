//! A client of the changing world: requests whole objects, ranges and changes, and checks each
//! response against the versions permitted when the request was sent.
//!
//! Invariant: a response counts as wrong only if RFC 9110, RFC 9111 or the promise of a purge
//! forbids it, never because it is merely unexpected. Threads: one per client.

use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fastrand::Rng;

use super::HOST;
use super::world::{Kind, LIFE, World};
use crate::bench::zipf::Zipf;

/// Longest wait for bytes: a proxy that is silent for longer has hung.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Largest requested range in bytes.
const RANGE_BYTES_MAX: u64 = 400_000;
/// Most reports of wrong answers that are kept.
const REPORTS_MAX: usize = 5;

/// Results of the clients.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) answers: u64,
    pub(crate) body_bytes: u64,
    pub(crate) hits: u64,
    /// Hits on what the origin had sent to an earlier life of the proxy.
    pub(crate) hits_inherited: u64,
    /// Whole objects, ranges and 304 answers from the proxy.
    pub(crate) wholes: u64,
    pub(crate) parts: u64,
    pub(crate) not_modified: u64,
    /// Answers older than the origin's current version, which were permitted.
    pub(crate) permitted_old: u64,
    /// Connections that a kill ended before the answer was complete.
    pub(crate) cut_off: u64,
    /// Connections that ended early although the proxy lived, and an example.
    pub(crate) broken: u64,
    pub(crate) broke: Option<String>,
    /// Answers with status 500 or above.
    pub(crate) errors: u64,
    pub(crate) wrong: u64,
    pub(crate) reports: Vec<String>,
    /// Connections given up after [`SILENCE_MAX`] without bytes from the proxy.
    pub(crate) hung: u64,
}

impl Seen {
    pub(crate) fn merge(&mut self, other: Seen) {
        self.answers += other.answers;
        self.body_bytes += other.body_bytes;
        self.hits += other.hits;
        self.hits_inherited += other.hits_inherited;
        self.wholes += other.wholes;
        self.parts += other.parts;
        self.not_modified += other.not_modified;
        self.permitted_old += other.permitted_old;
        self.cut_off += other.cut_off;
        self.broken += other.broken;
        self.broke = other.broke.or(self.broke.take());
        self.errors += other.errors;
        self.wrong += other.wrong;
        self.hung += other.hung;
        self.reports.extend(other.reports);
        self.reports.truncate(REPORTS_MAX);
    }
}

/// A request.
struct Question {
    number: u64,
    /// The oldest permitted version.
    least: u64,
    range: Option<(u64, u64)>,
    if_none_match: Option<u64>,
    if_range: Option<u64>,
}

/// The head of an answer, and the part of its body that arrived.
#[derive(Default)]
struct Answer {
    status: u16,
    tag: String,
    content_range: Option<String>,
    length: Option<usize>,
    chunked: bool,
    close: bool,
    cache_status: String,
    age: String,
    /// The life of the proxy that the origin sent it to.
    life: Option<u64>,
    body: Vec<u8>,
}

/// One client.
pub(crate) struct Client<'a> {
    pub(crate) world: &'a World,
    pub(crate) zipf: &'a Zipf,
    pub(crate) proxy: SocketAddr,
    /// Set just before the proxy is killed.
    pub(crate) over: &'a AtomicBool,
    pub(crate) rng: Rng,
    pub(crate) seen: Seen,
}

impl Client<'_> {
    /// Sends requests until the proxy accepts no more connections.
    pub(crate) fn run(mut self) -> Seen {
        while let Ok(stream) = TcpStream::connect(self.proxy) {
            match self.converse(stream) {
                Ok(()) => {}
                Err(error) if timed_out(&error) => self.seen.hung += 1,
                Err(_) if self.over.load(Ordering::SeqCst) => self.seen.cut_off += 1,
                Err(_) => self.seen.broken += 1,
            }
        }
        self.seen
    }

    /// Uses one connection to its end.
    fn converse(&mut self, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE_MAX))?;
        let mut reader = BufReader::new(stream);
        loop {
            let question = self.question();
            reader.get_mut().write_all(self.text_of(&question).as_bytes())?;
            let mut answer = read_head(&mut reader)?;
            let whole = read_body(&mut reader, &mut answer);
            self.judge(&question, &answer, whole.is_ok());
            if whole.is_err() && !self.over.load(Ordering::SeqCst) {
                let kind = World::kind(question.number);
                let (got, said) = (answer.body.len(), &answer.cache_status);
                self.seen.broke =
                    Some(format!("{kind:?}, {} after {got} bytes, {said}", answer.status));
            }
            whole?;
            if answer.close {
                return Ok(());
            }
        }
    }

    fn question(&mut self) -> Question {
        let number = u64::from(self.zipf.draw(&mut self.rng));
        let large = World::kind(number) == Kind::Large;
        let known = self.world.current(number).saturating_sub(self.rng.u64(..2));
        let mut question = Question {
            number,
            least: 0,
            range: None,
            if_none_match: (self.rng.u8(..) < 25).then_some(known),
            if_range: None,
        };
        if question.if_none_match.is_none() && self.rng.u8(..) < if large { 200 } else { 60 } {
            let length = self.world.length_bytes(number, known).max(1);
            let first = self.rng.u64(..length);
            question.range = Some((first, first + self.rng.u64(..RANGE_BYTES_MAX)));
            question.if_range = (self.rng.u8(..) < 50).then_some(known);
        }
        // Read last, immediately before the request is sent.
        question.least = self.world.least(number);
        question
    }

    fn text_of(&self, question: &Question) -> String {
        let path = World::path(question.number);
        let mut text = format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\n");
        if let Some((first, last)) = question.range {
            text.push_str(&format!("Range: bytes={first}-{last}\r\n"));
        }
        for (name, version) in
            [("If-None-Match", question.if_none_match), ("If-Range", question.if_range)]
        {
            if let Some(version) = version {
                text.push_str(&format!("{name}: {}\r\n", World::tag(question.number, version)));
            }
        }
        text.push_str("\r\n");
        text
    }

    fn judge(&mut self, question: &Question, answer: &Answer, whole: bool) {
        if answer.status >= 500 {
            self.seen.errors += 1;
            return;
        }
        self.seen.answers += u64::from(whole);
        self.seen.body_bytes += answer.body.len() as u64;
        let hit = answer.cache_status.contains("; hit");
        self.seen.hits += u64::from(hit);
        let inherited = hit && answer.life.is_some_and(|life| life < self.world.life());
        self.seen.hits_inherited += u64::from(inherited);
        let problem = match answer.status {
            416 => self.problem_of_416(question, answer),
            _ => self.problem(question, answer, whole),
        };
        let Some(problem) = problem else { return };
        self.seen.wrong += 1;
        if self.seen.reports.len() < REPORTS_MAX {
            let Question { number, least, range, if_none_match, if_range } = question;
            let current = self.world.current(*number);
            let Answer { status, tag, cache_status, age, .. } = answer;
            self.seen.reports.push(format!(
                "{problem}: {number} ({:?}), versions {least} to {current}, range {range:?}, \
                 if-none-match {if_none_match:?}, if-range {if_range:?}: {status} {tag}, {} bytes, \
                 age {age}, {cache_status}",
                World::kind(*number),
                answer.body.len(),
            ));
        }
    }

    /// The problem with an answer, if any.
    fn problem(
        &mut self,
        question: &Question,
        answer: &Answer,
        whole: bool,
    ) -> Option<&'static str> {
        let (world, number) = (self.world, question.number);
        let Some(version) = World::version_of(number, &answer.tag) else {
            return Some("another resource's tag");
        };
        let current = world.current(number);
        if version < question.least {
            return Some("a version that may not be served any more");
        }
        if version > current {
            return Some("a version that does not exist");
        }
        self.seen.permitted_old += u64::from(version < current);
        let length = world.length_bytes(number, version);
        let got = answer.body.len() as u64;
        let (offset, expected) = match answer.status {
            200 => {
                self.seen.wholes += 1;
                (0, length)
            }
            206 => {
                self.seen.parts += 1;
                let Some((first, last)) = question.range else {
                    return Some("a part that nobody asked for");
                };
                if question.if_range.is_some_and(|named| named != version) {
                    return Some("a part of another version than the condition names");
                }
                let last = last.min(length.saturating_sub(1));
                let said = format!("bytes {first}-{last}/{length}");
                if answer.content_range.as_ref() != Some(&said) {
                    return Some("another part than was asked for");
                }
                (first, last + 1 - first)
            }
            304 => {
                self.seen.not_modified += 1;
                let known = question.if_none_match == Some(version);
                return (!known).then_some("304 about another version than the client has");
            }
            _ => return Some("a status that nothing explains"),
        };
        if got > expected || (whole && got < expected) {
            return Some("another length than the version's");
        }
        let right = world.matches(number, version, offset, &answer.body);
        (!right).then_some("bytes of another version")
    }

    /// The problem with a 416: it is right only if the range starts beyond the end of a permitted
    /// version.
    fn problem_of_416(&self, question: &Question, answer: &Answer) -> Option<&'static str> {
        let first = question.range.map_or(0, |(first, _)| first);
        let said = answer.content_range.as_deref().and_then(|text| text.strip_prefix("bytes */"));
        let length = said.and_then(|text| text.parse::<u64>().ok());
        let versions = question.least..=self.world.current(question.number);
        let fits = |version| {
            let its = self.world.length_bytes(question.number, version);
            Some(its) == length && first >= its
        };
        (!versions.rev().any(fits)).then_some("416 that no version explains")
    }
}

fn timed_out(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

fn read_head(reader: &mut impl BufRead) -> io::Result<Answer> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if reader.read_until(b'\n', &mut head)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    let text = String::from_utf8_lossy(&head);
    let mut lines = text.lines();
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let status = lines.next().and_then(|line| line.split(' ').nth(1));
    let status = status.and_then(|status| status.parse().ok()).ok_or_else(invalid)?;
    let mut answer = Answer { status, ..Answer::default() };
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        match name.to_ascii_lowercase().as_str() {
            "etag" => value.clone_into(&mut answer.tag),
            "content-range" => answer.content_range = Some(value.to_owned()),
            "content-length" => answer.length = value.parse().ok(),
            "transfer-encoding" => answer.chunked = value == "chunked",
            "connection" => answer.close = value.contains("close"),
            "cache-status" => value.clone_into(&mut answer.cache_status),
            "age" => value.clone_into(&mut answer.age),
            LIFE => answer.life = value.parse().ok(),
            _ => {}
        }
    }
    Ok(answer)
}

/// Reads the body. After an error the answer keeps the bytes that arrived.
fn read_body(reader: &mut impl BufRead, answer: &mut Answer) -> io::Result<()> {
    if answer.status == 304 {
        return Ok(());
    }
    if !answer.chunked {
        let length = answer.length.ok_or(io::ErrorKind::InvalidData)?;
        return read_exactly(reader, length, &mut answer.body);
    }
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let length = usize::from_str_radix(line.trim(), 16);
        let length = length.map_err(|_| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        read_exactly(reader, length, &mut answer.body)?;
        let mut end = Vec::new();
        read_exactly(reader, 2, &mut end)?;
        if length == 0 {
            return Ok(());
        }
    }
}

fn read_exactly(reader: &mut impl BufRead, length: usize, into: &mut Vec<u8>) -> io::Result<()> {
    let read = reader.take(length as u64).read_to_end(into)?;
    if read < length { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}
