//! Column options in libCacheSim's notation: `time-col=1,obj-id-col=2,delimiter=,,has-header=true`.
//! Pure.

use crate::error::TraceError;

/// Columns beyond this are an error in the options rather than a wide trace.
const COLUMN_MAX: usize = 1024;

/// Column options as given; what is not given is found out from the first line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ColumnOptions {
    /// Column of the time, from 1.
    pub time_column: Option<usize>,
    /// Column of the object, from 1.
    pub object_column: Option<usize>,
    /// Column of the size, from 1.
    pub size_column: Option<usize>,
    /// Column of the size of the key, from 1, where no column has that of the whole object.
    pub key_size_column: Option<usize>,
    /// Column of the size of the value, from 1.
    pub value_size_column: Option<usize>,
    /// Column of what is done (get, set, delete), from 1; without it all lines ask.
    pub operation_column: Option<usize>,
    /// What stands between columns.
    pub delimiter: Option<u8>,
    /// Whether the first line is no request.
    pub has_header: Option<bool>,
    /// True: every object is a number; false: none is, whatever it looks like.
    pub object_is_number: Option<bool>,
}

impl ColumnOptions {
    /// True if they mean something only where a line has columns.
    pub(crate) fn name_columns(&self) -> bool {
        let columns = [
            self.time_column,
            self.object_column,
            self.size_column,
            self.key_size_column,
            self.value_size_column,
            self.operation_column,
        ];
        columns.iter().any(Option::is_some) || self.delimiter.is_some()
    }

    /// Understands libCacheSim's notation; parts are separated by `,` or `;`.
    ///
    /// # Errors
    /// What is not understood, with what would be.
    pub fn parse(given: &str) -> Result<ColumnOptions, TraceError> {
        let bad = |reason: String| TraceError::Columns { given: given.to_owned(), reason };
        let mut options = ColumnOptions::default();
        // A blank at the end may be the delimiter.
        let mut rest = given.trim_start();
        while !rest.trim_start().is_empty() {
            let (key, after) = rest
                .split_once('=')
                .ok_or_else(|| bad(format!("`{rest}` is not of the form name=value")))?;
            let key = key.trim().replace('_', "-").to_ascii_lowercase();
            if key == "delimiter" {
                let (delimiter, after) = take_delimiter(after).map_err(bad)?;
                once(&mut options.delimiter, delimiter, &key).map_err(bad)?;
                rest = after.trim_start_matches([',', ';', ' ']);
                continue;
            }
            let end = after.find([',', ';']).unwrap_or(after.len());
            let value = after[..end].trim();
            rest = after[end..].trim_start_matches([',', ';', ' ']);
            options.set(&key, value).map_err(bad)?;
        }
        Ok(options)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let column = || match value.parse() {
            Ok(column @ 1..=COLUMN_MAX) => Ok(column),
            _ => Err(format!("`{key}={value}`: columns are numbers from 1 to {COLUMN_MAX}")),
        };
        let truth = || match value.to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "y" => Ok(true),
            "false" | "0" | "no" | "n" => Ok(false),
            _ => Err(format!("`{key}={value}`: write true or false")),
        };
        match key {
            "time-col" | "time-field" => once(&mut self.time_column, column()?, key),
            "obj-id-col" | "obj-id-field" => once(&mut self.object_column, column()?, key),
            "obj-size-col" | "obj-size-field" | "size-col" | "size-field" => {
                once(&mut self.size_column, column()?, key)
            }
            "key-size-col" => once(&mut self.key_size_column, column()?, key),
            "value-size-col" | "val-size-col" => once(&mut self.value_size_column, column()?, key),
            "op-col" => once(&mut self.operation_column, column()?, key),
            "header" | "has-header" => once(&mut self.has_header, truth()?, key),
            "obj-id-is-num" => once(&mut self.object_is_number, truth()?, key),
            _ => Err(format!(
                "there is no `{key}`; there are time-col, obj-id-col, obj-size-col, \
                 key-size-col, value-size-col, op-col, delimiter, has-header, obj-id-is-num"
            )),
        }
    }
}

/// Sets what is not set yet: of two values one would be passed over, and nobody knows which was
/// meant.
fn once<T>(option: &mut Option<T>, value: T, key: &str) -> Result<(), String> {
    match option.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("`{key}` is given twice")),
    }
}

/// `\t`, one character, or nothing, which means a comma (`delimiter=,,next=...`).
fn take_delimiter(after: &str) -> Result<(u8, &str), String> {
    if let Some(rest) = after.strip_prefix("\\t") {
        return Ok((b'\t', rest));
    }
    match after.as_bytes() {
        // `tab`, `comma`.
        [first, second, ..] if first.is_ascii_alphanumeric() && second.is_ascii_alphanumeric() => {
            let word = after.split([',', ';']).next().unwrap_or(after);
            Err(format!("`delimiter={word}`: write one character, or \\t for a tab"))
        }
        [byte, ..] if byte.is_ascii() => Ok((*byte, &after[1..])),
        _ => Ok((b',', after)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_libcachesims() {
        for text in [
            "time-col=2,obj-id-col=5,obj-size-col=4,delimiter=,,has-header=true",
            "time_col=2; obj_id_col=5; size_field=4; delimiter=,; header=1",
            "delimiter=,has-header=yes,time-field=2,obj-id-field=5,size-col=4",
        ] {
            let options = ColumnOptions::parse(text).expect(text);
            assert_eq!(options.time_column, Some(2), "{text}");
            assert_eq!(options.object_column, Some(5), "{text}");
            assert_eq!(options.size_column, Some(4), "{text}");
            assert_eq!(options.delimiter, Some(b','), "{text}");
            assert_eq!(options.has_header, Some(true), "{text}");
        }
        assert_eq!(ColumnOptions::parse("delimiter=\\t").expect("tab").delimiter, Some(b'\t'));
        assert_eq!(ColumnOptions::parse("delimiter=;").expect("semicolon").delimiter, Some(b';'));
        for blank in [" ", "\t"] {
            let text = format!("obj-id-col=1,delimiter={blank}");
            let delimiter = ColumnOptions::parse(&text).expect("blank").delimiter;
            assert_eq!(delimiter, blank.bytes().next());
        }
        for (text, reason) in [
            ("obj-id-col=0", "`obj-id-col=0`: columns are numbers from 1 to 1024"),
            ("obj-id", "`obj-id` is not of the form name=value"),
            ("header=maybe", "`header=maybe`: write true or false"),
            ("time-col=1,obj-id-col=2,time_col=3", "`time-col` is given twice"),
            ("size-col=1,obj-size-col=1", "`obj-size-col` is given twice"),
            ("delimiter=,,obj-id-col=2,delimiter=;", "`delimiter` is given twice"),
            ("has-header=true,header=false", "`header` is given twice"),
            (
                "delimiter=tab,obj-id-col=2",
                "`delimiter=tab`: write one character, or \\t for a tab",
            ),
        ] {
            let error = ColumnOptions::parse(text).expect_err(text).to_string();
            assert!(error.ends_with(reason), "{error}");
        }
        let unknown = ColumnOptions::parse("speed=5").expect_err("unknown").to_string();
        assert!(unknown.contains("there is no `speed`; there are time-col"), "{unknown}");
    }
}
