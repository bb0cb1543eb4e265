//! A smaller trace that behaves like the whole: by objects (all requests of some objects, as SHARDS
//! does, which keeps reuse intact), by clients, or every n-th request. Decided by a seeded hash, so
//! the same seed keeps the same objects whatever the order. Pure.

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use super::record::Record;
use super::source::object_name;
use crate::error::shown;
use crate::ids::mix;

/// What is kept or left out as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampleBy {
    /// All requests of an object.
    Object,
    /// All requests of a client.
    Client,
    /// All requests for objects of a host.
    Host,
    /// Each request on its own.
    Request,
}

impl SampleBy {
    /// What it is, of several.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SampleBy::Object => "objects",
            SampleBy::Client => "clients",
            SampleBy::Host => "hosts",
            SampleBy::Request => "requests",
        }
    }
}

/// That a trace is a share of another one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SampleOf {
    /// Of what: objects, clients, hosts or requests.
    pub of: String,
    /// The share, above 0, at most 1.
    pub share: f64,
}

impl SampleOf {
    /// What whoever looks at results must know.
    pub(crate) fn words(samples: &[SampleOf]) -> Option<String> {
        let shares =
            samples.iter().map(|sample| format!("{} of the {}", sample.share, shown(&sample.of)));
        let shares: Vec<String> = shares.collect();
        let share: f64 = samples.iter().map(|sample| sample.share).product();
        let is_of_objects = samples.iter().all(|sample| sample.of == SampleBy::Object.name());
        let times = format!("{:.6}", 1.0 / share);
        let times = times.trim_end_matches('0').trim_end_matches('.');
        let what = match is_of_objects {
            true => format!(
                "numbers, bytes and sizes of caches are those of the sample, not scaled: for the \
                 whole, caches are {times} times as large"
            ),
            false => {
                "numbers, bytes and sizes of caches are those of the sample, not scaled".to_owned()
            }
        };
        (!samples.is_empty()).then(|| format!("a sample, {}; {what}", shares.join(", of these ")))
    }
}

/// Decides for each request.
#[derive(Debug, Clone)]
pub struct Sampler {
    by: SampleBy,
    share: f64,
    /// Hashes below it stay, of 2^53.
    threshold: u64,
    seed: u64,
    request: u64,
    unnamed: u64,
}

const HASH_BITS: u32 = 53;

impl Sampler {
    /// Keeps a share between 0 and 1 of what `by` says; `None` for another share.
    #[must_use]
    pub fn new(by: SampleBy, share: f64, seed: u64) -> Option<Sampler> {
        if !(share > 0.0 && share <= 1.0) {
            return None;
        }
        let threshold = (share * (1u64 << HASH_BITS) as f64) as u64;
        Some(Sampler { by, share, threshold, seed, request: 0, unnamed: 0 })
    }

    /// What it goes by.
    #[must_use]
    pub fn by(&self) -> SampleBy {
        self.by
    }

    /// What the trace is that it makes.
    #[must_use]
    pub fn sample_of(&self) -> SampleOf {
        SampleOf { of: self.by.name().to_owned(), share: self.share }
    }

    /// Requests so far that do not name what it goes by: they stay or go as one.
    #[must_use]
    pub fn unnamed(&self) -> u64 {
        self.unnamed
    }

    /// True if the request stays.
    pub fn keeps(&mut self, record: &Record<'_>) -> bool {
        self.request += 1;
        self.unnamed += u64::from(match self.by {
            SampleBy::Client => record.client.is_empty(),
            SampleBy::Host => record.host().is_empty(),
            SampleBy::Object | SampleBy::Request => false,
        });
        let name = match self.by {
            SampleBy::Object => object_name(record.object),
            SampleBy::Client => XxHash3_64::oneshot(record.client),
            SampleBy::Host => XxHash3_64::oneshot(&record.host().to_ascii_lowercase()),
            SampleBy::Request => self.request,
        };
        (mix(name ^ mix(self.seed).bits()).bits() >> (64 - HASH_BITS)) < self.threshold
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::record::ObjectName;

    fn record(id: u64) -> Record<'static> {
        Record {
            time_us: 0,
            client: b"",
            method: b"",
            status: 0,
            cache_result: b"",
            size_bytes: 1,
            object: ObjectName::Id(id),
        }
    }

    #[test]
    fn an_object_stays_or_goes_with_all_its_requests() {
        let mut sampler = Sampler::new(SampleBy::Object, 0.25, 1).expect("a share");
        let first: Vec<bool> = (0..10_000).map(|id| sampler.keeps(&record(id))).collect();
        let again: Vec<bool> = (0..10_000).map(|id| sampler.keeps(&record(id))).collect();
        assert_eq!(first, again);
        let kept = first.iter().filter(|kept| **kept).count();
        assert!((2300..2700).contains(&kept), "{kept} of 10000 at a quarter");
        let mut other = Sampler::new(SampleBy::Object, 0.25, 2).expect("a share");
        assert_ne!(first, (0..10_000).map(|id| other.keeps(&record(id))).collect::<Vec<_>>());
    }

    #[test]
    fn what_names_nobody_is_counted() {
        let url = ObjectName::Text(b"http://a/");
        let named = Record { client: b"u", object: url, ..record(1) };
        for (by, expected) in [
            (SampleBy::Object, 0),
            (SampleBy::Client, 3),
            (SampleBy::Host, 3),
            (SampleBy::Request, 0),
        ] {
            let mut sampler = Sampler::new(by, 0.5, 1).expect("a share");
            let stay: Vec<bool> = (0..3).map(|_| sampler.keeps(&record(7))).collect();
            assert!(by == SampleBy::Request || stay == [stay[0]; 3], "as one");
            sampler.keeps(&named);
            assert_eq!((sampler.by(), sampler.unnamed()), (by, expected));
        }
    }

    #[test]
    fn shares_out_of_range_are_refused_and_one_keeps_all() {
        for share in [0.0, -1.0, 1.5, f64::NAN] {
            assert!(Sampler::new(SampleBy::Request, share, 0).is_none());
        }
        let mut all = Sampler::new(SampleBy::Request, 1.0, 0).expect("all");
        assert!((0..1000).all(|_| all.keeps(&record(7))));
    }
}
