//! The macro `body!`: implements [`hyper::body::Body`] from three plain methods.
//!
//! A user imports `Body`, `Bytes`, `Frame`, `SizeHint`, `Pin`, `Context` and `Poll`. No threads.

use std::task::Poll;

use bytes::Bytes;
use hyper::body::Frame;

use crate::error::BodyError;

/// The next frame of a body, its end, or the error it broke off with.
pub(crate) type PolledFrame = Poll<Option<Result<Frame<Bytes>, BodyError>>>;

/// Number of data bytes in a frame; zero for trailers.
pub(crate) fn data_bytes(frame: &Frame<Bytes>) -> u64 {
    frame.data_ref().map_or(0, |data| data.len() as u64)
}

/// Implements [`hyper::body::Body`] for a type by its methods `next_frame`, `has_ended` and
/// `length`.
macro_rules! body {
    ($name:ty) => {
        impl Body for $name {
            type Data = Bytes;
            type Error = BodyError;

            fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> PolledFrame {
                self.get_mut().next_frame(cx)
            }

            fn is_end_stream(&self) -> bool {
                self.has_ended()
            }

            fn size_hint(&self) -> SizeHint {
                self.length()
            }
        }
    };
}

pub(crate) use body;
