//! Kinds of values with a narrower range than others of their type: a value outside would be
//! clamped silently, or keep the proxy from working. Pure, no threads.

use std::time::Duration;

use super::kinds::{Count, Kind, Size, Time, Value};
use crate::server::WORKERS_MAX;
use crate::slices::SLICE_BYTES_MAX;

/// A duration long enough for something to happen in it.
pub(crate) struct Span;
/// A number of worker threads.
pub(crate) struct Threads;
/// A slice length.
pub(crate) struct SliceSize;

impl Kind<Duration> for Span {
    const WRITTEN: &'static str = "a time above zero such as 500ms, 30s, 5m, 2h or 1d";
    fn read(value: &Value) -> Result<Duration, String> {
        let time = <Time as Kind<Duration>>::read(value)?;
        if time.is_zero() { Err(value.wanted(<Self as Kind<Duration>>::WRITTEN)) } else { Ok(time) }
    }
    fn show(value: &Duration) -> String {
        <Time as Kind<Duration>>::show(value)
    }
}

impl Kind<Option<Duration>> for Span {
    const WRITTEN: &'static str = "a time above zero such as 30s, or none";
    fn read(value: &Value) -> Result<Option<Duration>, String> {
        let time = <Time as Kind<Option<Duration>>>::read(value)?;
        match time {
            Some(time) if time.is_zero() => {
                Err(value.wanted(<Self as Kind<Option<Duration>>>::WRITTEN))
            }
            time => Ok(time),
        }
    }
    fn show(value: &Option<Duration>) -> String {
        <Time as Kind<Option<Duration>>>::show(value)
    }
}

impl Kind<usize> for Threads {
    const WRITTEN: &'static str = "a number from 1 to 1024";
    fn read(value: &Value) -> Result<usize, String> {
        let number = <Count as Kind<usize>>::read(value).ok();
        number.filter(|n| *n <= WORKERS_MAX).ok_or_else(|| value.wanted(Self::WRITTEN))
    }
    fn show(value: &usize) -> String {
        <Count as Kind<usize>>::show(value)
    }
}

impl Kind<u64> for SliceSize {
    const WRITTEN: &'static str = "a size up to 16MiB";
    fn read(value: &Value) -> Result<u64, String> {
        let size = <Size as Kind<u64>>::read(value)?;
        if size <= SLICE_BYTES_MAX { Ok(size) } else { Err(value.wanted(Self::WRITTEN)) }
    }
    fn show(value: &u64) -> String {
        <Size as Kind<u64>>::show(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_range_is_refused() {
        let text = |text: &str| Value::of_argument(text);
        assert!(<Span as Kind<Duration>>::read(&text("0s")).is_err());
        assert!(<Span as Kind<Duration>>::read(&text("1ms")).is_ok());
        assert!(<Span as Kind<Option<Duration>>>::read(&text("0ms")).is_err());
        assert_eq!(<Span as Kind<Option<Duration>>>::read(&text("none")), Ok(None));
        assert_eq!(Threads::read(&text("1024")), Ok(1024));
        for wrong in ["0", "1025", "100000", "many"] {
            assert!(Threads::read(&text(wrong)).is_err(), "{wrong}");
        }
        assert_eq!(SliceSize::read(&text("16MiB")), Ok(16 << 20));
        assert!(SliceSize::read(&text("16777217")).is_err());
        assert!(Threads::WRITTEN.ends_with(&WORKERS_MAX.to_string()));
        assert!(
            SliceSize::WRITTEN
                .ends_with(&<Size as Kind<u64>>::show(&SLICE_BYTES_MAX).replace('"', ""))
        );
    }
}
