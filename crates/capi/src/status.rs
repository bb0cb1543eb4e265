//! The numbered results: their values (the ABI, never changed), their words, and which error of the
//! store gives which number. Plain values, no threads.

use damelo::device::DeviceOpenError;
use damelo::{CreateError, MetadataError, OpenError, PurgeError, ReadError, SyncError};

/// Declares the results once: number, name in C, words.
macro_rules! statuses {
    ($($variant:ident = $number:literal, $c_name:literal, $text:literal;)*) => {
        /// What an entry point returns. Zero is success.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(i32)]
        pub enum Status {
            $(#[doc = $text] $variant = $number,)*
        }

        impl Status {
            /// Every result.
            pub const ALL: &'static [Status] = &[$(Status::$variant),*];

            /// The name in `status.h`.
            pub const fn c_name(self) -> &'static str {
                match self { $(Status::$variant => $c_name,)* }
            }

            /// What it means, for C.
            pub const fn text(self) -> &'static std::ffi::CStr {
                // The literal is ended here, in one place.
                const fn ended(text: &'static str) -> &'static std::ffi::CStr {
                    match std::ffi::CStr::from_bytes_with_nul(text.as_bytes()) {
                        Ok(text) => text,
                        Err(_) => c"?",
                    }
                }
                match self { $(Status::$variant => ended(concat!($text, "\0")),)* }
            }
        }
    };
}

statuses! {
    Ok = 0, "DAMELO_OK", "success";
    Invalid = 1, "DAMELO_EINVAL", "invalid argument";
    NotFound = 2, "DAMELO_ENOTFOUND", "no such object";
    Panic = 3, "DAMELO_EPANIC", "internal fault in the library";
    Closed = 4, "DAMELO_ECLOSED", "the store is closed";
    Io = 5, "DAMELO_EIO", "input/output error on a volume";
    Memory = 6, "DAMELO_EMEMORY", "no memory of the store came free in time";
    TooLarge = 7, "DAMELO_ETOOLARGE", "object too large";
    Key = 8, "DAMELO_EKEY", "key empty or too long";
    Metadata = 9, "DAMELO_EMETADATA", "metadata too large";
    NotAdmitted = 10, "DAMELO_ENOTADMITTED", "object not admitted";
    Volume = 11, "DAMELO_EVOLUME", "no volume in service";
    Group = 12, "DAMELO_EGROUP", "group number out of range";
    NotPinned = 13, "DAMELO_ENOTPINNED", "release without a matching read";
    Buffer = 14, "DAMELO_EBUFFER", "buffer too small";
    Open = 15, "DAMELO_EOPEN", "the store could not be opened";
    Missing = 16, "DAMELO_EMISSING", "no such volume";
    Locked = 17, "DAMELO_ELOCKED", "the store is open, in another process or by a handle, writer or reader of this one";
    Foreign = 18, "DAMELO_EFOREIGN", "the volume holds something that is not a Damelo store";
    Format = 19, "DAMELO_EFORMAT", "store damaged or of another version";
    Mismatch = 20, "DAMELO_EMISMATCH", "an option contradicts the store";
    NoSpace = 21, "DAMELO_ENOSPACE", "not enough room on the file system or device";
    Gone = 22, "DAMELO_EGONE", "the rest of the object is gone";
    Dropped = 23, "DAMELO_EDROPPED", "objects could not be written and were dropped";
    Other = 24, "DAMELO_EOTHER", "error";
    StillWriting = 25, "DAMELO_EWRITING", "the object is still on its way to disk";
    Superseded = 26, "DAMELO_ESUPERSEDED", "the object was stored anew meanwhile";
    Torn = 27, "DAMELO_ETORN", "an earlier write of the object failed";
}

impl Status {
    /// The result with this number.
    pub fn from_number(number: i32) -> Option<Status> {
        Status::ALL.iter().copied().find(|status| *status as i32 == number)
    }
}

impl From<&OpenError> for Status {
    fn from(error: &OpenError) -> Status {
        match error {
            OpenError::Device(error) => Status::from(error),
            OpenError::Setting { .. } | OpenError::TooSmall { .. } => Status::Invalid,
            OpenError::NotOurs { .. } => Status::Foreign,
            OpenError::Version { .. } | OpenError::Damaged { .. } => Status::Format,
            OpenError::Contradicts { .. }
            | OpenError::Cut { .. }
            | OpenError::WrongVolume { .. }
            | OpenError::VolumeCount { .. } => Status::Mismatch,
            OpenError::NamedTwice { .. } => Status::Invalid,
            OpenError::SmallerThanDeclared { .. } => Status::NoSpace,
            OpenError::Missing { .. } | OpenError::VolumeMissing { .. } => Status::Missing,
            OpenError::Io { .. } => Status::Io,
            _ => Status::Open,
        }
    }
}

impl From<&DeviceOpenError> for Status {
    fn from(error: &DeviceOpenError) -> Status {
        match error {
            DeviceOpenError::NotFound { .. }
            | DeviceOpenError::NoDevice { .. }
            | DeviceOpenError::ParentMissing { .. } => Status::Missing,
            DeviceOpenError::SizeZero { .. } => Status::Invalid,
            DeviceOpenError::TooShort { .. } => Status::Foreign,
            DeviceOpenError::NoRoom { .. }
            | DeviceOpenError::Quota { .. }
            | DeviceOpenError::TooLarge { .. } => Status::NoSpace,
            DeviceOpenError::Locked { .. } | DeviceOpenError::InUse { .. } => Status::Locked,
            _ => Status::Open,
        }
    }
}

impl From<&CreateError> for Status {
    fn from(error: &CreateError) -> Status {
        match error {
            CreateError::KeyLength { .. } => Status::Key,
            CreateError::TooLarge { .. } | CreateError::TooLargeForVolumes { .. } => {
                Status::TooLarge
            }
            CreateError::Overwritten { .. } => Status::Gone,
            CreateError::MetadataTooLarge { .. } => Status::Metadata,
            CreateError::MemoryFull => Status::Memory,
            CreateError::NotAdmitted { .. } => Status::NotAdmitted,
            CreateError::Closed => Status::Closed,
            CreateError::VolumesGone { .. } => Status::Volume,
            CreateError::Write { .. } => Status::Io,
            CreateError::Torn => Status::Torn,
            CreateError::Superseded => Status::Superseded,
            _ => Status::Other,
        }
    }
}

impl From<&MetadataError> for Status {
    fn from(error: &MetadataError) -> Status {
        match error {
            MetadataError::StillWriting { .. } => Status::StillWriting,
            MetadataError::Unanswered { .. } => Status::Io,
            MetadataError::Superseded => Status::Superseded,
            MetadataError::Create(error) => Status::from(error),
            _ => Status::Other,
        }
    }
}

impl From<&ReadError> for Status {
    fn from(error: &ReadError) -> Status {
        match error {
            ReadError::MemoryFull => Status::Memory,
            ReadError::TooLargeForMemory { .. } => Status::TooLarge,
            ReadError::Gone => Status::Gone,
            ReadError::Unanswered { .. } => Status::Io,
            ReadError::Closed => Status::Closed,
            _ => Status::Other,
        }
    }
}

impl From<&PurgeError> for Status {
    fn from(error: &PurgeError) -> Status {
        match error {
            PurgeError::Journal(_) => Status::Io,
            PurgeError::PrefixLength { .. } => Status::Key,
            PurgeError::Closed => Status::Closed,
            _ => Status::Other,
        }
    }
}

impl From<&SyncError> for Status {
    fn from(error: &SyncError) -> Status {
        match error {
            SyncError::Io(_) => Status::Io,
            SyncError::Dropped { .. } => Status::Dropped,
            SyncError::VolumesGone { .. } => Status::Volume,
            SyncError::Closed => Status::Closed,
            _ => Status::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_its_own_words() {
        for (number, status) in Status::ALL.iter().enumerate() {
            assert_eq!(*status as usize, number, "numbers are dense");
            assert_eq!(Status::from_number(number as i32), Some(*status));
            assert!(status.text().to_bytes().len() > 1, "{status:?}");
        }
        assert_eq!(Status::from_number(-1), None);
        assert_eq!(Status::from_number(Status::ALL.len() as i32), None);
    }
}
