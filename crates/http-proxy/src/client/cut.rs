//! Breaks off a tunnel on a stream of HTTP/2.
//!
//! When a tunnel is dropped, hyper ends its stream as if all had been sent. A client whose protocol
//! does not say where it ends would take a part for the whole, so the task that ends the stream is
//! told before, and is dropped, which resets the stream. Threads: the connection's worker, on which
//! nothing else runs between the word and the drop.

use std::sync::Arc;

use tokio::sync::Notify;

/// The end of one tunnel, for who breaks it off and for who sends its bytes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cut(Arc<Notify>);

impl Cut {
    /// Lets the stream end in a reset, as soon as the tunnel is dropped or before.
    pub(crate) fn make(&self) {
        self.0.notify_one();
    }

    /// Ready once it was made.
    pub(crate) async fn made(&self) {
        self.0.notified().await;
    }
}
