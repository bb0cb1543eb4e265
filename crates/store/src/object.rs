//! The guards that reads return: views of bytes in the store's memory.
//!
//! Invariant: a guard pins the run that holds the object; for a small object that is a whole page
//! with other objects. It holds no lock and may outlive the store; dropping it is one atomic
//! decrement. Threads: guards are `Send + Sync`.

use std::ops::Deref;

use bytes::Bytes;

use crate::memory::pool::Run;
use crate::memory::resident::Record;
use crate::types::{GroupId, Sequence};

/// A whole object in memory. Derefs to its value.
///
/// The guard pins memory of the store's budget until it is dropped ([`Object::pinned_bytes`]). An
/// object of less than a third of a page shares a page with others, and its guard pins all of it
/// (64 KiB unless configured otherwise): a hundred guards on objects of a hundred bytes may pin 6.4
/// MiB. Keep a guard only while its bytes are in use, and copy small values that are kept for
/// longer.
#[derive(Clone)]
pub struct Object {
    run: Run,
    body: u32,
    key_len: u32,
    meta_len: u32,
    value_len: u32,
    expires_s: u32,
    group: GroupId,
    /// Sequence number of the object's record.
    pub(crate) seq: Sequence,
    from_memory: bool,
}

impl Object {
    #[inline]
    pub(crate) fn of(record: &Record<'_>, from_memory: bool) -> Object {
        let head = record.head;
        Object {
            run: record.run.clone(),
            body: record.offset + head.key_start() as u32,
            key_len: head.key_len(),
            meta_len: head.meta_len(),
            value_len: head.value_len() as u32,
            expires_s: head.expires_s(),
            group: head.group(),
            seq: head.sequence(),
            from_memory,
        }
    }

    /// The object's key.
    pub fn key(&self) -> &[u8] {
        self.run.bytes(self.body as usize, self.key_len as usize)
    }

    /// The metadata beside the value.
    pub fn metadata(&self) -> &[u8] {
        self.run.bytes((self.body + self.key_len) as usize, self.meta_len as usize)
    }

    /// The group that the object was created in.
    pub fn group(&self) -> GroupId {
        self.group
    }

    /// When it expires, in seconds since 1970.
    pub fn expires_unix_s(&self) -> Option<u64> {
        (self.expires_s != 0).then_some(u64::from(self.expires_s))
    }

    /// Bytes of the store's memory that this guard pins, at least the value, key and metadata. For
    /// a small object that is its whole page, which other guards may pin too.
    pub fn pinned_bytes(&self) -> usize {
        self.run.len_bytes()
    }

    /// True if the read needed no disk I/O.
    pub fn from_memory(&self) -> bool {
        self.from_memory
    }

    /// The metadata and the value, without copying. Both, and all slices of either, share this
    /// guard: the memory stays pinned until the last of them is dropped. One allocation.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let config = damelo::Config::new(dir.path().join("store"), "64MiB".parse()?);
    /// # let store = damelo::Store::open(config)?;
    /// let options = damelo::CreateOptions { metadata: b"text/plain", ..Default::default() };
    /// store.create_with(b"/a", damelo::GroupId::of("site"), b"hello", options).wait()?;
    /// let object = store.read(b"/a").wait()?.expect("just created");
    /// let (metadata, value) = object.into_parts();
    /// assert_eq!((&metadata[..], &value[..]), (&b"text/plain"[..], &b"hello"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn into_parts(self) -> (Bytes, Bytes) {
        let metadata = self.meta_len as usize;
        let mut value = Bytes::from_owner(MetadataAndValue(self));
        let metadata = value.split_to(metadata);
        (metadata, value)
    }

    /// Where the run that holds it begins.
    pub(crate) fn first_place(&self) -> u32 {
        self.run.first()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        let start = self.body as usize + self.key_len as usize + self.meta_len as usize;
        self.run.bytes(start, self.value_len as usize)
    }
}

/// The owner of what [`Object::into_parts`] returns.
struct MetadataAndValue(Object);

impl AsRef<[u8]> for MetadataAndValue {
    fn as_ref(&self) -> &[u8] {
        let Object { run, body, key_len, meta_len, value_len, .. } = &self.0;
        run.bytes((body + key_len) as usize, *meta_len as usize + *value_len as usize)
    }
}

impl Deref for Object {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.value()
    }
}

impl AsRef<[u8]> for Object {
    fn as_ref(&self) -> &[u8] {
        self.value()
    }
}

impl From<Object> for Bytes {
    /// Without copying; the memory stays pinned until the last `Bytes` is dropped, including slices
    /// of it. For small values that are kept for long, `Bytes::copy_from_slice` takes less memory
    /// ([`Object::pinned_bytes`]).
    fn from(object: Object) -> Bytes {
        if object.value_len == 0 { Bytes::new() } else { Bytes::from_owner(object) }
    }
}

impl std::fmt::Debug for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Object")
            .field("key", &String::from_utf8_lossy(self.key()))
            .field("length_bytes", &self.value_len)
            .field("group", &self.group)
            .field("from_memory", &self.from_memory)
            .finish_non_exhaustive()
    }
}

/// A part of an object in memory. Derefs to the bytes of the range, and pins memory as an
/// [`Object`] does.
#[derive(Clone)]
pub struct ObjectRange {
    pub(crate) run: Option<Run>,
    pub(crate) start: usize,
    pub(crate) len: usize,
    pub(crate) offset: u64,
    pub(crate) object_length: u64,
    pub(crate) group: GroupId,
    pub(crate) metadata: Bytes,
}

impl ObjectRange {
    pub(crate) fn of_object(object: Object, range: &std::ops::Range<u64>) -> ObjectRange {
        let length = u64::from(object.value_len);
        let (from, to) = (range.start.min(length), range.end.min(length));
        let value = object.body as usize + object.key_len as usize + object.meta_len as usize;
        ObjectRange {
            start: value + from as usize,
            len: to.saturating_sub(from) as usize,
            offset: from,
            object_length: length,
            group: object.group(),
            metadata: Bytes::copy_from_slice(object.metadata()),
            run: Some(object.run),
        }
    }

    /// Start of the range within the object, in bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Length of the whole object in bytes.
    pub fn object_length_bytes(&self) -> u64 {
        self.object_length
    }

    /// The group that the object was created in.
    pub fn group(&self) -> GroupId {
        self.group
    }

    /// The metadata beside the value.
    pub fn metadata(&self) -> &[u8] {
        &self.metadata
    }
}

impl Deref for ObjectRange {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.run.as_ref().map_or(&[], |run| run.bytes(self.start, self.len))
    }
}

impl AsRef<[u8]> for ObjectRange {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<ObjectRange> for Bytes {
    /// Without copying; the bytes stay pinned until the last `Bytes` is gone.
    fn from(range: ObjectRange) -> Bytes {
        if range.len == 0 { Bytes::new() } else { Bytes::from_owner(range) }
    }
}

impl std::fmt::Debug for ObjectRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ObjectRange")
            .field("offset", &self.offset)
            .field("length_bytes", &self.len)
            .field("object_length_bytes", &self.object_length)
            .finish_non_exhaustive()
    }
}

/// An object without its value.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ObjectInfo {
    /// The group that the object was created in.
    pub group: GroupId,
    /// Length of the value in bytes.
    pub length_bytes: u64,
    /// The metadata beside the value.
    pub metadata: Bytes,
    /// When it expires, in seconds since 1970.
    pub expires_unix_s: Option<u64>,
    /// True if the object was in memory when it was looked up.
    pub resident: bool,
}

impl ObjectInfo {
    pub(crate) fn of(object: &Object) -> ObjectInfo {
        ObjectInfo {
            group: object.group(),
            length_bytes: object.len() as u64,
            metadata: Bytes::copy_from_slice(object.metadata()),
            expires_unix_s: object.expires_unix_s(),
            resident: object.from_memory,
        }
    }
}
