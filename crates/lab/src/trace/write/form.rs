//! The forms that can be written, and what each cannot say. Pure.

use serde::{Deserialize, Serialize};

use crate::trace::fields::US_PER_S;
use crate::trace::record::Record;

/// Forms that can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteFormat {
    /// Our own: keeps everything but Squid's result.
    Damelo,
    /// Binary; whole seconds, numbers for objects, sizes below 4 GiB.
    OracleGeneral,
    /// `time,obj_id,obj_size` with that header, numbers for objects.
    Csv,
    /// One object a line, as a number.
    Txt,
}

impl WriteFormat {
    /// A format by its name, without case.
    #[must_use]
    pub fn by_name(given: &str) -> Option<WriteFormat> {
        match given.to_ascii_lowercase().as_str() {
            "damelo" => Some(WriteFormat::Damelo),
            "oraclegeneral" | "oraclegeneralbin" => Some(WriteFormat::OracleGeneral),
            "csv" => Some(WriteFormat::Csv),
            "txt" => Some(WriteFormat::Txt),
            _ => None,
        }
    }

    /// The format that a file's name asks for: `.oracleGeneral`, `.csv`, `.txt` anywhere in it.
    #[must_use]
    pub fn of_file(path: &str) -> Option<WriteFormat> {
        let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
        let ends = |end: &str| {
            name.strip_suffix(".gz").or(name.strip_suffix(".zst")).unwrap_or(&name).ends_with(end)
        };
        if name.contains("oraclegeneral") {
            Some(WriteFormat::OracleGeneral)
        } else if ends(".csv") {
            Some(WriteFormat::Damelo)
        } else if ends(".txt") {
            Some(WriteFormat::Txt)
        } else {
            None
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            WriteFormat::Damelo => "damelo",
            WriteFormat::OracleGeneral => "oracleGeneral",
            WriteFormat::Csv => "csv",
            WriteFormat::Txt => "txt",
        }
    }
}

/// What the form that was written could not say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lost {
    /// Requests to remove an object, refused ones too, left out: all but our own form only ask.
    pub deletes: u64,
    /// Requests without a body of their own, left out: in txt every object has one byte, and of
    /// oracleGeneral they would not be counted.
    pub empty: u64,
    /// Requests written without the result of the cache that logged them, in our own form. The
    /// others have no more to ask rules about anyway.
    pub results: u64,
    /// Requests written with whole seconds though their time has a fraction (oracleGeneral), or
    /// without their time (txt).
    pub times: u64,
    /// Requests written without their size, in txt, other than the one byte that counts there.
    pub sizes: u64,
    /// Requests written without the client, a method other than GET or the status that they had:
    /// all but our own form have no place for these.
    pub fields: u64,
}

impl Lost {
    /// True if nothing was lost.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Lost::default()
    }

    /// Counts what a form does not say of a request; true if it leaves all of it out.
    pub(super) fn note(&mut self, record: &Record<'_>, format: WriteFormat) -> bool {
        let (keeps_empty, cuts_time, cuts_size) = match format {
            WriteFormat::Damelo => {
                self.results += u64::from(!record.cache_result.is_empty());
                return false;
            }
            WriteFormat::OracleGeneral => (false, !record.time_us.is_multiple_of(US_PER_S), false),
            WriteFormat::Csv => (true, false, false),
            WriteFormat::Txt => (false, record.time_us > 0, record.size_bytes != 1),
        };
        let is_delete = record.asks_to_delete();
        let is_empty = !keeps_empty && !record.has_body() && !is_delete;
        self.deletes += u64::from(is_delete);
        self.empty += u64::from(is_empty);
        if is_delete || is_empty {
            return true;
        }
        // Without a method all are GET.
        let has_method = !matches!(record.method, b"" | b"GET");
        let has_fields = !record.client.is_empty() || has_method || record.status != 0;
        self.times += u64::from(cuts_time);
        self.sizes += u64::from(cuts_size);
        self.fields += u64::from(has_fields);
        false
    }
}
