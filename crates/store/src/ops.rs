//! The operation types that `Store` returns: values that callers await on any executor, or wait
//! for.
//!
//! An operation that needs no waiting is ready when it is returned; what is in memory, or nowhere,
//! is so without an allocation. Otherwise `.wait()` does the work on the calling thread, and
//! polling hands it to the store's own threads. Invariant: an operation that is not ready, and is
//! dropped before it is waited for or polled, does nothing. Threads: any.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::deferred::Deferred;
use crate::error::{CreateError, MetadataError, PurgeError, ReadError, SyncError};
use crate::object::{Object, ObjectInfo, ObjectRange};
use crate::read::prefetch::PrefetchReport;
use crate::read::stream::Reader;

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident -> $output:ty;)*) => {$(
        $(#[$doc])*
        #[must_use = "await it, or call wait()"]
        pub struct $name(pub(crate) Deferred<$output>);

        impl $name {
            /// True if the outcome is available without further work or waiting. A read is ready if
            /// the object is in memory or certainly absent; a look-up or reader of a long object is
            /// if the object's head is.
            #[inline]
            pub fn is_ready(&self) -> bool {
                self.0.is_ready()
            }

            /// Does the operation on this thread and returns its outcome.
            ///
            /// # Errors
            /// Those of the call that made it.
            ///
            /// # Panics
            /// If the operation was polled before: it must then be awaited to its end.
            #[inline]
            pub fn wait(self) -> $output {
                self.0.wait()
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name))
                    .field("is_ready", &self.is_ready())
                    .finish_non_exhaustive()
            }
        }

        // Nothing inside is structurally pinned: the parts are boxed.
        impl Unpin for $name {}

        impl Future for $name {
            type Output = $output;

            fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<$output> {
                self.0.poll(cx)
            }
        }
    )*};
}

operations! {
    /// A read of a whole object; see [`Store::read`](crate::Store::read).
    Read -> Result<Option<Object>, ReadError>;
    /// A read of a part of an object; see [`Store::read_range`](crate::Store::read_range).
    ReadRange -> Result<Option<ObjectRange>, ReadError>;
    /// The start of a streamed read; see [`Store::reader`](crate::Store::reader).
    OpenReader -> Result<Option<Reader>, ReadError>;
    /// A look at an object without its value; see [`Store::lookup`](crate::Store::lookup).
    Lookup -> Result<Option<ObjectInfo>, ReadError>;
    /// The length of an object; see [`Store::length`](crate::Store::length).
    Length -> Result<Option<u64>, ReadError>;
    /// The creation of an object; see [`Store::create`](crate::Store::create).
    Create -> Result<(), CreateError>;
    /// The end of a streamed creation; see [`Writer::commit`](crate::Writer::commit).
    Commit -> Result<(), CreateError>;
    /// New metadata for an object; see [`Store::set_metadata`](crate::Store::set_metadata).
    SetMetadata -> Result<bool, MetadataError>;
    /// The removal of an object; see [`Awaited::remove`](crate::Awaited::remove).
    Remove -> Result<bool, PurgeError>;
    /// A purge; see [`Awaited::purge_group`](crate::Awaited::purge_group).
    Purge -> Result<(), PurgeError>;
    /// A sync or a checkpoint; see [`Awaited::sync`](crate::Awaited::sync).
    Syncing -> Result<(), SyncError>;
    /// Bringing a group into memory; see [`Store::prefetch`](crate::Store::prefetch).
    Prefetch -> Result<PrefetchReport, ReadError>;
}
