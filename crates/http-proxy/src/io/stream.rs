//! Macros that implement the byte stream traits for enums of streams, without type parameters or
//! dynamic dispatch.
//!
//! A user imports `io`, `IoSlice`, `Pin`, `Context`, `Poll`, [`PolledRead`] and the traits of
//! tokio. No threads.

use std::io;
use std::task::Poll;

/// Forwards `AsyncWrite` to the stream that each arm binds.
macro_rules! forward_write {
    ($($arm:pat => $stream:ident),+) => {
        fn poll_write(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            match self.get_mut() { $($arm => Pin::new($stream).poll_write(cx, bytes),)+ }
        }

        fn poll_write_vectored(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            slices: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            match self.get_mut() { $($arm => Pin::new($stream).poll_write_vectored(cx, slices),)+ }
        }

        fn is_write_vectored(&self) -> bool {
            match self { $($arm => $stream.is_write_vectored(),)+ }
        }

        fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            match self.get_mut() { $($arm => Pin::new($stream).poll_flush(cx),)+ }
        }

        fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            match self.get_mut() { $($arm => Pin::new($stream).poll_shutdown(cx),)+ }
        }
    };
}

/// Implements `AsyncRead` for a type by its method `read_some`; its type parameters are in
/// brackets.
macro_rules! reads {
    ([$($parameters:tt)*] $name:ty) => {
        impl<$($parameters)*> AsyncRead for $name {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buffer: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                self.get_mut().read_some(cx, buffer)
            }
        }
    };
}

/// Result of `read_some`.
pub(crate) type PolledRead = Poll<io::Result<()>>;

/// Implements `AsyncRead` and `AsyncWrite` for an enum by those of its arms.
macro_rules! streams {
    ($name:ident: $($arm:ident),+) => {
        impl $name {
            fn read_some(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> PolledRead {
                match self { $($name::$arm(stream) => Pin::new(stream).poll_read(cx, buffer),)+ }
            }
        }

        reads!([] $name);

        impl AsyncWrite for $name {
            forward_write!($($name::$arm(stream) => stream),+);
        }
    };
}

pub(crate) use {forward_write, reads, streams};
