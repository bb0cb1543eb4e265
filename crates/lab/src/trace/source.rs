//! Opening whatever stands where a trace is expected (a path or `gen:NAME?...`), and turning its
//! records into requests with dense ids. One thread at a time.

use std::path::Path;

use twox_hash::XxHash3_64;

use super::fields::US_PER_S;
use super::input::ReadPosition;
use super::origin::declared;
use super::reader::{RawRequest, ReadOptions, RecordSource, Skipped, TraceReader};
use super::record::{ObjectName, Record};
use super::sample::SampleOf;
use crate::error::{Place, TraceError};
use crate::ids::{IdTable, mix};
use crate::request::{Catalogue, Request};
use crate::workload;

/// What marks a generator where a path could stand.
const GENERATOR_PREFIX: &str = "gen:";

/// True if a name stands for a generator, not for a file.
#[must_use]
pub fn is_generator(name: &str) -> bool {
    name.starts_with(GENERATOR_PREFIX)
}

/// An open trace.
pub struct Trace {
    source: Box<dyn RecordSource>,
    name: String,
    form: String,
    synthetic: bool,
    has_times: bool,
    notes: Vec<String>,
    samples: Vec<SampleOf>,
    file_bytes: u64,
    position: ReadPosition,
    requests: u64,
    requests_max: u64,
}

impl Trace {
    /// Opens a trace file, or the generator that `gen:NAME?parameter=value&...` names.
    ///
    /// # Errors
    /// When there is no such file or generator, or its form is not understood.
    pub fn open(name: &str, options: &ReadOptions) -> Result<Trace, TraceError> {
        let position = ReadPosition::default();
        let mut trace = Trace {
            source: Box::new(Nothing),
            name: name.to_owned(),
            form: "generator".to_owned(),
            synthetic: true,
            has_times: true,
            notes: Vec::new(),
            samples: Vec::new(),
            file_bytes: 0,
            position: position.clone(),
            requests: 0,
            requests_max: options.requests_max.unwrap_or(u64::MAX),
        };
        if let Some(generator) = name.strip_prefix(GENERATOR_PREFIX) {
            if let Some(option) = options.given_for_files() {
                return Err(TraceError::NoFile { name: name.to_owned(), option });
            }
            trace.source = workload::generator(generator)?;
        } else {
            let (reader, bytes) = TraceReader::open(name, options, position)?;
            trace.form = reader.format().name().to_owned();
            trace.has_times = reader.has_times();
            trace.notes = reader.notes();
            trace.source = Box::new(reader);
            let declared = declared(Path::new(name), bytes).unwrap_or_default();
            trace.synthetic = declared.synthetic;
            trace.notes.extend(SampleOf::words(&declared.samples));
            trace.samples = declared.samples;
            trace.file_bytes = bytes;
        }
        Ok(trace)
    }

    /// As it was opened.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Name of its format, `generator` for one.
    #[must_use]
    pub fn form(&self) -> &str {
        &self.form
    }

    /// True if nobody ever made these requests: every output must say so.
    #[must_use]
    pub fn is_synthetic(&self) -> bool {
        self.synthetic
    }

    /// Of what it is a share, as the manifest beside it says; none of a whole trace.
    #[must_use]
    pub fn samples(&self) -> &[SampleOf] {
        &self.samples
    }

    /// False if all requests have the time 0, since the form has no times or their column is not
    /// known.
    #[must_use]
    pub fn has_times(&self) -> bool {
        self.has_times
    }

    /// What whoever looks at results must know of how it is read: what is not, for one.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The seed of a generator, given or by default; none of a file.
    #[must_use]
    pub fn seed(&self) -> Option<u64> {
        self.name.strip_prefix(GENERATOR_PREFIX).and_then(workload::seed)
    }

    /// Requests that a generator will make, as far as it can be told before; none of a file.
    #[must_use]
    pub fn requests_to_come(&self) -> Option<u64> {
        let requests = self.name.strip_prefix(GENERATOR_PREFIX).and_then(workload::requests)?;
        Some(requests.min(self.requests_max))
    }

    /// Bytes of the file, 0 for a generator.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// How far the file is read, for progress.
    #[must_use]
    pub fn position(&self) -> ReadPosition {
        self.position.clone()
    }
}

impl RecordSource for Trace {
    #[inline]
    fn advance(&mut self) -> Result<bool, TraceError> {
        if self.requests == self.requests_max || !self.source.advance()? {
            return Ok(false);
        }
        self.requests += 1;
        Ok(true)
    }

    fn batch(&mut self, requests: &mut Vec<RawRequest>, len: usize) -> Result<(), TraceError> {
        let before = requests.len();
        let left = usize::try_from(self.requests_max - self.requests).unwrap_or(usize::MAX);
        let end = len.min(before.saturating_add(left));
        if before < end {
            self.source.batch(requests, end)?;
        }
        self.requests += (requests.len() - before) as u64;
        Ok(())
    }

    #[inline]
    fn record(&self) -> Record<'_> {
        self.source.record()
    }

    fn place(&self) -> Option<Place> {
        self.source.place().or(Some(Place::Record(self.requests)))
    }

    fn skipped(&self) -> Skipped {
        self.source.skipped()
    }
}

struct Nothing;

impl RecordSource for Nothing {
    fn advance(&mut self) -> Result<bool, TraceError> {
        Ok(false)
    }

    fn record(&self) -> Record<'_> {
        unreachable!("`advance` is never true")
    }
}

/// The 64-bit name of an object: its number, or a hash of its text. Any two of n texts share a hash
/// with probability n^2 / 2^65: one in 370,000 for a trace of ten million URLs.
#[inline]
pub(crate) fn object_name(object: ObjectName<'_>) -> u64 {
    match object {
        ObjectName::Id(id) => id,
        ObjectName::Text(text) => XxHash3_64::oneshot(text),
    }
}

/// Dense ids for objects, hosts and clients, and if wanted their names.
pub struct Interner {
    objects: IdTable,
    hosts: IdTable,
    clients: IdTable,
    catalogue: Option<Catalogue>,
    lower: Vec<u8>,
}

impl Interner {
    /// An interner that keeps names, for whoever prints them.
    #[must_use]
    pub fn with_names() -> Interner {
        Interner { catalogue: Some(Catalogue::new()), ..Interner::without_names() }
    }

    /// An interner that forgets names: at most 17.4 bytes for each object.
    #[must_use]
    pub fn without_names() -> Interner {
        Interner {
            objects: IdTable::new(),
            hosts: IdTable::new(),
            clients: IdTable::new(),
            catalogue: None,
            lower: Vec::new(),
        }
    }

    /// The record with dense ids, and without a size if it has no body: that of headers, which
    /// Squid logs, is none of an object.
    ///
    /// # Errors
    /// When there are more than 2^32 - 1 objects, hosts or clients.
    pub fn request(&mut self, record: &Record<'_>) -> Result<Request, TraceError> {
        let key = self.object(record.object)?;
        Ok(Request {
            time_us: record.time_us,
            client: intern(&mut self.clients, XxHash3_64::oneshot(record.client), "clients")?,
            key: u64::from(key),
            size_bytes: record.body_bytes(),
            host: self.host(record.host())?,
            op: record.op(),
        })
    }

    /// Key of an object.
    fn object(&mut self, object: ObjectName<'_>) -> Result<u32, TraceError> {
        let before = self.objects.len();
        let key = intern(&mut self.objects, object_name(object), "objects")?;
        if let Some(catalogue) = &mut self.catalogue
            && key as usize == before
        {
            match object {
                ObjectName::Text(text) => catalogue.push_url(text),
                ObjectName::Id(id) => catalogue.push_url(id.to_string().as_bytes()),
            };
        }
        Ok(key)
    }

    /// Hosts are the same whatever their case.
    fn host(&mut self, host: &[u8]) -> Result<u32, TraceError> {
        self.lower.clear();
        self.lower.extend(host.iter().map(u8::to_ascii_lowercase));
        let before = self.hosts.len();
        let id = intern(&mut self.hosts, XxHash3_64::oneshot(&self.lower), "hosts")?;
        if let Some(catalogue) = &mut self.catalogue
            && id as usize == before
        {
            catalogue.push_host(&self.lower);
        }
        Ok(id)
    }

    /// Distinct objects so far.
    #[must_use]
    pub fn objects_len(&self) -> usize {
        self.objects.len()
    }

    /// Distinct hosts so far; traces without hosts have one, the empty one.
    #[must_use]
    pub fn hosts_len(&self) -> usize {
        self.hosts.len()
    }

    /// Distinct clients so far; traces without clients have one, the empty one.
    #[must_use]
    pub fn clients_len(&self) -> usize {
        self.clients.len()
    }

    /// The names, if they were kept.
    #[must_use]
    pub fn into_catalogue(self) -> Option<Catalogue> {
        self.catalogue
    }
}

/// Progress is told after so many requests.
const TELL_EVERY: u64 = 1 << 16;
/// Latest time since the first request. A run counts nanoseconds in 64 bits; half of them are left
/// for what it does itself.
const TIME_US_MAX: u64 = u64::MAX / 1_000 / 2;

/// All that is left of a trace, with names, as designs and papers need it: 40 bytes a request
/// besides the names. What has no body of its own has size 0, whatever is logged. Time counts from
/// the earliest request, which need not be the first; `tell` hears now and then how many were read.
///
/// # Errors
/// When the trace cannot be read, or goes on for centuries.
pub fn load(
    source: &mut dyn RecordSource,
    tell: impl FnMut(u64),
) -> Result<(Vec<Request>, Catalogue), TraceError> {
    load_kept(source, |_| true, u64::MAX, tell)
}

/// The same of those requests that are to be kept, `kept_max` at most; the others leave no names.
///
/// # Errors
/// When the trace cannot be read, goes on for centuries, or has more that are to be kept.
pub fn load_kept(
    source: &mut dyn RecordSource,
    keeps: impl FnMut(&Record<'_>) -> bool,
    kept_max: u64,
    tell: impl FnMut(u64),
) -> Result<(Vec<Request>, Catalogue), TraceError> {
    let mut requests: Vec<Request> = Vec::new();
    let each = |request| {
        if requests.len() as u64 == kept_max {
            return Err(TraceError::NoRoom { max: kept_max });
        }
        requests.push(request);
        Ok(())
    };
    let Gathered { names, earliest_us, .. } = gather(source, keeps, tell, each)?;
    requests.iter_mut().for_each(|request| request.time_us -= earliest_us);
    Ok((requests, names))
}

/// What was found besides requests.
pub(super) struct Gathered {
    pub(super) names: Catalogue,
    /// Of no request at all the end of time, and its beginning.
    pub(super) earliest_us: u64,
    pub(super) latest_us: u64,
}

/// Hands on each request that is to be kept, with the time that the trace has.
pub(super) fn gather(
    source: &mut dyn RecordSource,
    mut keeps: impl FnMut(&Record<'_>) -> bool,
    mut tell: impl FnMut(u64),
    mut each: impl FnMut(Request) -> Result<(), TraceError>,
) -> Result<Gathered, TraceError> {
    let mut interner = Interner::with_names();
    let mut read = 0;
    let (mut earliest_us, mut latest_us) = (u64::MAX, 0);
    while source.advance()? {
        let record = source.record();
        if keeps(&record) {
            let request = interner.request(&record)?;
            earliest_us = earliest_us.min(request.time_us);
            latest_us = latest_us.max(request.time_us);
            if latest_us - earliest_us > TIME_US_MAX {
                let us = latest_us - earliest_us;
                let (seconds, max) = (us / US_PER_S, TIME_US_MAX / US_PER_S);
                let place = source.place().unwrap_or(Place::Record(read + 1));
                return Err(TraceError::TooLate { place, seconds, max });
            }
            each(request)?;
        }
        read += 1;
        if read % TELL_EVERY == 0 {
            tell(read);
        }
    }
    let names = interner.into_catalogue().unwrap_or_default();
    Ok(Gathered { names, earliest_us, latest_us })
}

/// Puts requests into the order of their times, those of one time as they were; returns how many
/// come after one that is later. Logs are often written in the order in which answers ended.
pub fn sort_by_time(requests: &mut [Request]) -> usize {
    let mut latest_us = 0;
    let mut late = 0;
    for request in requests.iter() {
        late += usize::from(request.time_us < latest_us);
        latest_us = latest_us.max(request.time_us);
    }
    if late > 0 {
        requests.sort_by_key(|request| request.time_us);
    }
    late
}

fn intern(table: &mut IdTable, name: u64, what: &'static str) -> Result<u32, TraceError> {
    table.intern(name, mix(name)).ok_or(TraceError::TooMany { what, max: u64::from(u32::MAX) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Op;

    /// Sizes of what has no body are those of headers, if any: none of an object.
    #[test]
    fn what_has_no_body_has_no_size_once_it_is_loaded() {
        let log = "1 9 u TCP_HIT/200 900 GET http://a/1 - NONE/- -\n\
                   2 9 u TCP_IMS_HIT/304 250 GET http://a/1 - NONE/- -\n\
                   3 9 u TCP_MISS/200 260 HEAD http://a/2 - NONE/- -\n";
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), log).expect("written");
        let name = file.path().to_str().expect("a name");
        let mut trace = Trace::open(name, &ReadOptions::default()).expect("a log of Squid");
        let (requests, _) = load(&mut trace, |_| ()).expect("three lines");
        let sizes: Vec<u64> = requests.iter().map(|request| request.size_bytes).collect();
        assert_eq!(sizes, [900, 0, 0]);
    }

    /// Times 5, 3, 9, 3 and 7 s: counted from the earliest, 2, 0, 6, 0, 4. In order those of 3 s
    /// come first, as they stood, then 5, 7, 9; three came after a later one.
    #[test]
    fn times_count_from_the_earliest_and_can_be_put_in_order() {
        let line = |(at, second): (usize, u64)| {
            format!("{second} 9 u TCP_MISS/200 900 GET http://a/{at} - NONE/- -\n")
        };
        let log: String = [5, 3, 9, 3, 7].into_iter().enumerate().map(line).collect();
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), log).expect("written");
        let name = file.path().to_str().expect("a name");
        let mut trace = Trace::open(name, &ReadOptions::default()).expect("a log of Squid");
        let (mut requests, _) = load(&mut trace, |_| ()).expect("five lines");
        let times = |requests: &[Request]| -> Vec<(u64, u64)> {
            requests.iter().map(|request| (request.key, request.time_us / US_PER_S)).collect()
        };
        assert_eq!(times(&requests), [(0, 2), (1, 0), (2, 6), (3, 0), (4, 4)]);
        assert_eq!(sort_by_time(&mut requests), 3);
        assert_eq!(times(&requests), [(1, 0), (3, 0), (0, 2), (4, 4), (2, 6)]);
        assert_eq!(sort_by_time(&mut requests), 0);
    }

    #[test]
    fn ids_are_dense_and_names_come_back() {
        let mut interner = Interner::with_names();
        let mut request = |client: &'static str, method: &'static str, url: &'static str| {
            let record = Record {
                time_us: 5,
                client: client.as_bytes(),
                method: method.as_bytes(),
                status: 200,
                cache_result: b"",
                size_bytes: 7,
                object: ObjectName::Text(url.as_bytes()),
            };
            interner.request(&record).expect("few objects")
        };
        let a = request("u", "GET", "http://A.example:80/1");
        let b = request("v", "PUT", "http://b.example/1");
        let again = request("u", "DELETE", "http://a.EXAMPLE/2");
        assert_eq!((a.key, a.host, a.client, a.op), (0, 0, 0, Op::Read));
        assert_eq!((b.key, b.host, b.client, b.op), (1, 1, 1, Op::Write));
        assert_eq!((again.key, again.host, again.client, again.op), (2, 0, 0, Op::Delete));
        assert_eq!((a.time_us, a.size_bytes), (5, 7));
        assert_eq!(
            (interner.objects_len(), interner.hosts_len(), interner.clients_len()),
            (3, 2, 2)
        );
        let names = interner.into_catalogue().expect("names are kept");
        assert_eq!((names.url(1), names.host(0)), (&b"http://b.example/1"[..], &b"a.example"[..]));
    }
}
