//! What the values of charts are of: where axes have ticks, and how a value is written. Bytes are
//! in powers of two with the units of the tables beside the charts; time is in the unit that its
//! axis is long for. Pure.

use damelo::ByteSize;

use super::chart::short;

/// About as many ticks as an axis has.
const TICKS: f64 = 5.0;
/// Most ticks of an axis of bytes on which equal distances are equal factors.
const DOUBLINGS_MAX: i32 = 11;
/// Units of time in seconds, and up to which end of the axis each is used.
const TIMES: [(&str, f64, f64); 4] = [
    ("s", 1.0, 300.0),
    ("min", 60.0, 5.0 * 3_600.0),
    ("h", 3_600.0, 5.0 * 86_400.0),
    ("d", 86_400.0, f64::INFINITY),
];

/// What values are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unit {
    /// Whatever the axis or the title says.
    #[default]
    Number,
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
}

/// How values up to a greatest one are written: all of an axis alike.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Form {
    Number,
    Bytes,
    Time { unit: &'static str, seconds: f64 },
}

impl Unit {
    /// The form of an axis that ends at `max`.
    pub(super) fn up_to(self, max: f64) -> Form {
        match self {
            Unit::Number => Form::Number,
            Unit::Bytes => Form::Bytes,
            Unit::Seconds => {
                let fits = |(_, _, end): &&(&str, f64, f64)| max <= *end;
                let (unit, seconds, _) = TIMES.iter().find(fits).unwrap_or(&TIMES[3]);
                Form::Time { unit, seconds: *seconds }
            }
        }
    }
}

impl Form {
    /// A value as short as it can be read: `1.5M`, `11.1MiB`, `20 d`.
    pub(super) fn text(self, value: f64) -> String {
        match self {
            Form::Number => short(value),
            // More than 64 bits of bytes there are not.
            Form::Bytes => ByteSize::new(value.round() as u64).to_string(),
            Form::Time { unit, seconds } => format!("{} {unit}", short(value / seconds)),
        }
    }

    /// Round values from `min` to `max`, equally far apart.
    pub(super) fn ticks(self, min: f64, max: f64) -> Vec<f64> {
        let step = match self {
            Form::Number => round_step((max - min) / TICKS),
            Form::Bytes => ((max - min) / TICKS).log2().ceil().exp2().max(1.0),
            Form::Time { seconds, .. } => round_step((max - min) / TICKS / seconds) * seconds,
        };
        let first = (min / step).ceil() as i64;
        let last = (max / step + 1e-9).floor() as i64;
        (first..=last).map(|n| n as f64 * step).collect()
    }

    /// The same where equal distances are equal factors.
    pub(super) fn log_ticks(self, min: f64, max: f64) -> Vec<f64> {
        let within = |tick: &f64| *tick >= min * 0.999 && *tick <= max * 1.001;
        if self == Form::Bytes {
            let (first, last) = (min.log2().floor() as i32, max.log2().ceil() as i32);
            let every = [1, 2, 5, 10].into_iter().find(|n| (last - first) / n < DOUBLINGS_MAX);
            let every = every.unwrap_or(20);
            let powers = (first..=last).filter(|power| power % every == 0).map(|n| 2f64.powi(n));
            let ticks: Vec<f64> = powers.filter(within).collect();
            return if ticks.len() > 1 { ticks } else { self.ticks(min, max) };
        }
        let (first, last) = (min.log10().floor() as i32, max.log10().ceil() as i32);
        let steps: &[f64] = if last - first <= 2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        (first..=last)
            .flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)))
            .filter(within)
            .collect()
    }
}

/// 1, 2 or 5 times a power of ten, at least `step`.
fn round_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let round = [1.0, 2.0, 5.0, 10.0].into_iter().find(|round| round * power >= step * 0.999);
    round.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(form: Form, ticks: &[f64]) -> Vec<String> {
        ticks.iter().map(|tick| form.text(*tick)).collect()
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!([round_step(0.13), round_step(0.6), round_step(9.0)], [0.2, 1.0, 10.0]);
        let number = Unit::Number.up_to(1.0);
        assert_eq!(number.ticks(0.0, 1.04), [0.0, 0.5, 1.0]);
        assert_eq!(number.log_ticks(9.0, 1_100.0), [10.0, 100.0, 1_000.0]);
        assert_eq!(number.log_ticks(9.0, 99.0), [10.0, 20.0, 50.0]);
    }

    /// As the tables beside a chart have them.
    #[test]
    fn bytes_are_in_powers_of_two() {
        let bytes = Unit::Bytes.up_to(1e9);
        assert_eq!(bytes.text(11_669_700.0), "11.1MiB");
        let mib = f64::from(1 << 20);
        let ticks = bytes.log_ticks(1.1 * mib, 900.0 * mib);
        let all = ["2MiB", "4MiB", "8MiB", "16MiB", "32MiB", "64MiB", "128MiB", "256MiB", "512MiB"];
        assert_eq!(written(bytes, &ticks)[..], all[..]);
        let ticks = bytes.log_ticks(512.0, 1e12);
        assert_eq!(written(bytes, &ticks), ["1KiB", "32KiB", "1MiB", "32MiB", "1GiB", "32GiB"]);
        // Less than a doubling, and an axis that is not logarithmic.
        let near = written(bytes, &bytes.log_ticks(11.0 * mib, 13.0 * mib));
        assert_eq!(near, ["11MiB", "11.5MiB", "12MiB", "12.5MiB", "13MiB"]);
        assert_eq!(written(bytes, &bytes.ticks(0.0, 100.0 * mib)).last().expect("ticks"), "96MiB");
    }

    #[test]
    fn time_is_in_the_unit_that_fits_its_end() {
        for (max, expected) in [
            (120.0, "50 s, 100 s"),
            (7_200.0, "50 min, 100 min"),
            (86_400.0, "5 h, 10 h, 15 h, 20 h"),
            (8_640_000.0, "20 d, 40 d, 60 d, 80 d, 100 d"),
        ] {
            let form = Unit::Seconds.up_to(max);
            assert_eq!(written(form, &form.ticks(1.0, max)).join(", "), expected);
        }
    }
}
