//! Why a read of what the index knows gives nothing. Owns nothing.

use crate::error::ReadError;

/// Why a reader gets nothing of what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    /// Its segment was reused.
    Overwritten,
    /// Something else lies there.
    Damaged,
    /// The device could not read it.
    Unreadable,
    /// It lies on a volume out of service.
    OutOfService,
}

/// Why there are no bytes.
#[derive(Debug)]
pub(crate) enum NotRead {
    /// A miss.
    Lost(Lost),
    Failed(ReadError),
}

impl From<Lost> for NotRead {
    fn from(lost: Lost) -> NotRead {
        NotRead::Lost(lost)
    }
}

impl From<ReadError> for NotRead {
    fn from(error: ReadError) -> NotRead {
        NotRead::Failed(error)
    }
}

/// Keeps misses apart from what failed.
pub(crate) fn or_lost<T>(read: Result<T, NotRead>) -> Result<Result<T, Lost>, ReadError> {
    match read {
        Ok(found) => Ok(Ok(found)),
        Err(NotRead::Lost(lost)) => Ok(Err(lost)),
        Err(NotRead::Failed(error)) => Err(error),
    }
}
