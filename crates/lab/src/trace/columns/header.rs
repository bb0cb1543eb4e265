//! What a header line says: which column holds what, by names that are understood, and which are
//! not read though their names speak of sizes or operations. Pure.

use super::field::take_field;
use crate::error::shortened;
use crate::trace::fields::TimeUnit;

/// Columns by their names, from 1.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) time: Option<usize>,
    pub(super) object: Option<usize>,
    pub(super) size: Option<usize>,
    pub(super) key_size: Option<usize>,
    pub(super) value_size: Option<usize>,
    pub(super) operation: Option<usize>,
    names: Vec<String>,
}

/// Names of columns that are understood, from the most exact on; those of one rank say the same.
/// Compared without case and without what is neither letter nor digit.
type Ranks = [&'static [&'static str]; 3];

const TIME_NAMES: Ranks = [&["clocktime", "optime"], &["time", "timestamp"], &["ts"]];
/// What may stand behind these to say what they count.
const UNIT_NAMES: [(&str, TimeUnit); 8] = [
    ("ms", TimeUnit::Milliseconds),
    ("millis", TimeUnit::Milliseconds),
    ("us", TimeUnit::Microseconds),
    ("micros", TimeUnit::Microseconds),
    ("ns", TimeUnit::Nanoseconds),
    ("nanos", TimeUnit::Nanoseconds),
    ("seconds", TimeUnit::Seconds),
    ("s", TimeUnit::Seconds),
];
const OBJECT_NAMES: Ranks =
    [&["objid", "objectid", "object"], &["key", "url", "cachekey"], &["id"]];
const SIZE_NAMES: Ranks = [&["objsize", "objectsize"], &["size", "sizebytes"], &["bytes"]];
const KEY_SIZE_NAMES: Ranks = [&["keysize"], &["keysizebytes", "keybytes"], &["keylength"]];
const VALUE_SIZE_NAMES: Ranks =
    [&["valuesize", "valsize"], &["valuesizebytes", "valuebytes"], &["valuelength"]];
const OPERATION_NAMES: Ranks =
    [&["op", "operation", "optype"], &["command", "cmd", "method"], &["verb", "requesttype"]];

/// Parts of names that speak of what changes the result, if it is not read.
const TELLING: [&str; 8] =
    ["size", "byte", "length", "operation", "command", "opcount", "optype", "opcode"];

impl Named {
    /// Reads the names of a first line, of which a time and a size that options give count for
    /// nothing.
    pub(super) fn of(
        line: &[u8],
        delimiter: u8,
        [time_given, size_given]: [Option<usize>; 2],
    ) -> Result<Named, String> {
        let mut best = [const { Best::NONE }; 6];
        let ranks = [
            &TIME_NAMES,
            &OBJECT_NAMES,
            &SIZE_NAMES,
            &KEY_SIZE_NAMES,
            &VALUE_SIZE_NAMES,
            &OPERATION_NAMES,
        ];
        let mut names = Vec::new();
        let mut rest = Some(line);
        while let Some(text) = rest {
            let (name, after) = take_field(text, delimiter)
                .map_err(|reason| format!("of its first line {reason}"))?;
            rest = after;
            names.push(String::from_utf8_lossy(name.text.trim_ascii()).into_owned());
            let (at, plain) = (names.len(), plain(name.text));
            best.iter_mut().zip(ranks).for_each(|(best, ranks)| best.consider(&plain, ranks, at));
            if unit_behind_time(&plain).is_some() {
                best[0].consider(TIME_NAMES[0][0], &TIME_NAMES, at);
            }
        }
        let [time, object, size, key_size, value_size, operation] = best;
        Ok(Named {
            time: match time_given {
                Some(_) => None,
                None => time.column("times", "time-col")?,
            },
            object: object.column("objects", "obj-id-col")?,
            size: match size_given {
                Some(_) => None,
                None => size.column("sizes", "obj-size-col")?,
            },
            key_size: key_size.column("sizes of keys", "key-size-col")?,
            value_size: value_size.column("sizes of values", "value-size-col")?,
            operation: operation.column("operations", "op-col")?,
            names,
        })
    }

    /// Columns that are not among those read, though their names speak of sizes or operations.
    pub(super) fn unread(&self, read: &[usize]) -> Vec<String> {
        let numbered = (1..).zip(&self.names).filter(|(at, _)| !read.contains(at));
        let telling = numbered.filter(|(_, name)| {
            let plain = plain(name.as_bytes());
            TELLING.iter().any(|part| plain.contains(part))
        });
        telling.map(|(at, name)| format!("{at} (`{}`)", shortened(name.as_bytes()))).collect()
    }
}

/// What a column of times counts, if its name says so: behind a word for times (`timestamp_us`), or
/// in a last word of its own (`begin [ms]`), which says it of what is known as times by an option.
pub(super) fn unit_of(name: &[u8]) -> Option<TimeUnit> {
    let mut words = name.rsplit(|byte| !byte.is_ascii_alphanumeric()).filter(|w| !w.is_empty());
    let last = words.next().map(plain).filter(|_| words.next().is_some());
    let by_last = || UNIT_NAMES.iter().find(|(unit, _)| last.as_deref() == Some(*unit));
    unit_behind_time(&plain(name)).or_else(|| by_last().map(|(_, unit)| *unit))
}

/// The unit at the end of a name that begins with a word for times.
fn unit_behind_time(plain: &str) -> Option<TimeUnit> {
    let is_time = |name: &str| TIME_NAMES.iter().any(|names| names.contains(&name));
    let named = |(end, _): &&(&str, TimeUnit)| plain.strip_suffix(end).is_some_and(is_time);
    UNIT_NAMES.iter().find(named).map(|(_, unit)| *unit)
}

/// Letters and digits alone, in small letters.
fn plain(name: &[u8]) -> String {
    let kept = name.iter().filter(|byte| byte.is_ascii_alphanumeric());
    kept.map(|byte| char::from(byte.to_ascii_lowercase())).collect()
}

/// The column whose name is the most exact so far.
struct Best {
    rank: usize,
    column: usize,
    /// Another one is as exact.
    tied: Option<usize>,
}

impl Best {
    const NONE: Best = Best { rank: usize::MAX, column: 0, tied: None };

    fn consider(&mut self, name: &str, ranks: &Ranks, column: usize) {
        let Some(rank) = ranks.iter().position(|names| names.contains(&name)) else { return };
        if rank < self.rank {
            *self = Best { rank, column, tied: None };
        } else if rank == self.rank {
            self.tied.get_or_insert(column);
        }
    }

    /// The column, if any was named; of two that are as exact nobody knows which was meant.
    fn column(&self, what: &str, option: &str) -> Result<Option<usize>, String> {
        match self.tied {
            Some(other) => Err(format!(
                "its first line names two columns of {what}, {} and {other}: write which, as in \
                 -t time-col=..,obj-id-col=..,obj-size-col=.. (`{option}`)",
                self.column
            )),
            None => Ok((self.rank < usize::MAX).then_some(self.column)),
        }
    }
}
