//! Reads of every kind, each answer checked by the model.

use std::sync::Arc;

use damelo::ReadError;

use super::ended::ended;
use super::{Checked, Driver, GUARD_BYTES_MAX, GUARDS_MAX, HeldGuard, seen};
use crate::model::{Demand, Key, Seen, show};

impl Driver {
    pub(super) fn read(&mut self, key: &Key, hold: bool, settled: bool) -> Checked {
        let now_s = self.now_s();
        let object = match ended!(self, self.store().read(key)) {
            Ok(Some(object)) => object,
            Ok(None) => return self.miss(key, now_s, settled),
            Err(ReadError::TooLargeForMemory { .. }) => {
                return self.read_stream(key, 0, false, settled);
            }
            Err(error) => return self.expected("read", &error),
        };
        if object.key() != &key[..] {
            return Err(format!("asked for {}, got {}", show(key), show(object.key())));
        }
        self.model.check_hit(key, &seen(&object), now_s, settled)?;
        if hold && object.len() <= GUARD_BYTES_MAX {
            if self.guards.len() == GUARDS_MAX {
                let oldest = self.guards.remove(0);
                oldest.check()?;
            }
            let exact = self.model.demand() != Demand::Genuine;
            let state = self.model.current(key).filter(|_| exact).cloned();
            self.guards.push(HeldGuard { key: Arc::clone(key), object, state });
        }
        Ok(())
    }

    pub(super) fn miss(&mut self, key: &Key, now_s: u64, settled: bool) -> Checked {
        if self.tolerant {
            return Ok(());
        }
        self.model.check_miss(key, now_s, settled)
    }

    pub(super) fn read_range(&mut self, key: usize, start: u32, end: u32) -> Checked {
        let key = self.key(key);
        let length = self.model.current(&key).map_or(1000, |s| s.length);
        let of = |thousandths: u32| length * u64::from(thousandths) / 1000;
        let (now_s, start, end) = (self.now_s(), of(start), of(end));
        let range = match ended!(self, self.store().read_range(&key, start..end)) {
            Ok(Some(range)) => range,
            Ok(None) => return self.miss(&key, now_s, true),
            Err(ReadError::TooLargeForMemory { .. }) => return Ok(()),
            Err(error) => return self.expected("read_range", &error),
        };
        let length = range.object_length_bytes();
        let (from, to) = (start.min(length), end.min(length).max(start.min(length)));
        if range.len() as u64 != to - from || (to > from && range.offset() != from) {
            let got = format!("{}+{}", range.offset(), range.len());
            return Err(format!("range {start}..{end} of {length} bytes gave {got}"));
        }
        let seen = Seen {
            bytes: Some((from, &range)),
            length,
            metadata: Some(range.metadata()),
            group: None,
            expires_unix_s: None,
        };
        self.model.check_hit(&key, &seen, now_s, true)
    }

    pub(super) fn read_stream(
        &mut self,
        key: &Key,
        seek: u32,
        hold: bool,
        settled: bool,
    ) -> Checked {
        let now_s = self.now_s();
        let mut reader = match ended!(self, self.store().reader(key)) {
            Ok(Some(reader)) => reader,
            Ok(None) => return self.miss(key, now_s, settled),
            Err(error) => return self.expected("reader", &error),
        };
        let info = reader.info().clone();
        let offset = info.length_bytes * u64::from(seek) / 1000;
        if offset > 0 {
            reader.seek(offset);
        }
        let mut bytes = Vec::new();
        loop {
            match ended!(self, reader.next()) {
                Ok(Some(chunk)) if chunk.is_empty() => return Err("reader gave no bytes".into()),
                Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
                Ok(None) => break,
                // An object that the ring or a fault took away while it was being read.
                Err(ReadError::Gone) if self.model.demand() != Demand::Strict => return Ok(()),
                Err(error) => return self.expected("reader", &error),
            }
        }
        if offset + bytes.len() as u64 != info.length_bytes {
            let got = bytes.len();
            return Err(format!("reader gave {got} bytes from {offset} of {}", info.length_bytes));
        }
        let seen = Seen {
            bytes: Some((offset, &bytes)),
            length: info.length_bytes,
            metadata: Some(&info.metadata),
            group: Some(info.group),
            expires_unix_s: Some(info.expires_unix_s),
        };
        self.model.check_hit(key, &seen, now_s, settled)?;
        if hold {
            self.hold_reader(key, reader, offset);
        }
        Ok(())
    }

    pub(super) fn lookup(&mut self, key: &Key) -> Checked {
        let now_s = self.now_s();
        let may = self.store().may_contain(key);
        let info = match ended!(self, self.store().lookup(key)) {
            Ok(Some(info)) => info,
            Ok(None) => return self.miss(key, now_s, true),
            Err(error) => return self.expected("lookup", &error),
        };
        if !may {
            return Err(format!("may_contain denies {} which lookup finds", show(key)));
        }
        let seen = Seen {
            bytes: None,
            length: info.length_bytes,
            metadata: Some(&info.metadata),
            group: Some(info.group),
            expires_unix_s: Some(info.expires_unix_s),
        };
        self.model.check_hit(key, &seen, now_s, true)?;
        match ended!(self, self.store().length(key)) {
            Ok(Some(length)) if length != info.length_bytes => {
                Err(format!("length says {length}, lookup {}", info.length_bytes))
            }
            Ok(_) => Ok(()),
            Err(error) => self.expected("length", &error),
        }
    }
}
