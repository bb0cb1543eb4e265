//! What a fetch brings, and what a read gets. Threads: any.

use std::ops::Deref;

use bytes::Bytes;

use crate::object::Object;

/// What a fetch brought, as it is to be stored.
#[derive(Debug, Clone, Default)]
pub struct Fetched {
    /// The value.
    pub value: Bytes,
    /// Metadata beside it; see [`CreateOptions::metadata`](crate::CreateOptions::metadata).
    pub metadata: Bytes,
    /// Expiry in seconds since 1970; `None`: never. Only the store looks at it: what was just
    /// fetched is passed on in any case.
    pub expires_unix_s: Option<u64>,
}

impl From<Bytes> for Fetched {
    fn from(value: Bytes) -> Fetched {
        Fetched { value, ..Fetched::default() }
    }
}

impl From<Vec<u8>> for Fetched {
    fn from(value: Vec<u8>) -> Fetched {
        Bytes::from(value).into()
    }
}

/// What a read got: an object of the store, or what was fetched. Derefs to the value.
#[derive(Debug, Clone)]
pub struct Served(Source);

#[derive(Debug, Clone)]
enum Source {
    Stored(Object),
    Fetched(Fetched),
}

impl Served {
    pub(super) fn stored(object: Object) -> Served {
        Served(Source::Stored(object))
    }

    pub(super) fn fetched(new: Fetched) -> Served {
        Served(Source::Fetched(new))
    }

    /// True if it was fetched for this read, by this caller or another one.
    pub fn is_fetched(&self) -> bool {
        matches!(self.0, Source::Fetched(_))
    }

    /// The metadata beside the value.
    pub fn metadata(&self) -> &[u8] {
        match &self.0 {
            Source::Stored(object) => object.metadata(),
            Source::Fetched(new) => &new.metadata,
        }
    }

    /// When it expires, in seconds since 1970.
    pub fn expires_unix_s(&self) -> Option<u64> {
        match &self.0 {
            Source::Stored(object) => object.expires_unix_s(),
            Source::Fetched(new) => new.expires_unix_s,
        }
    }

    /// The store's guard, if it was there.
    pub fn object(&self) -> Option<&Object> {
        match &self.0 {
            Source::Stored(object) => Some(object),
            Source::Fetched(_) => None,
        }
    }

    pub(super) fn into_value(self) -> Bytes {
        match self.0 {
            Source::Stored(object) => object.into(),
            Source::Fetched(new) => new.value,
        }
    }
}

impl Deref for Served {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Source::Stored(object) => object,
            Source::Fetched(new) => &new.value,
        }
    }
}

impl AsRef<[u8]> for Served {
    fn as_ref(&self) -> &[u8] {
        self
    }
}
