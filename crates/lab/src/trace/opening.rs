//! What is decided when a trace file is opened: its form, how its records lie or which parser reads
//! its lines, and whether what was asked about times means something there. Pure.

use super::binary::Layout;
use super::clf::Tail;
use super::columns::{ColumnOptions, Columns};
use super::format::{Format, LineParser, detect, first_line, is_json};
use super::reader::ReadOptions;
use super::{lcs, vscsi};
use crate::error::TraceError;

/// The form that is named, or else that which the name or the first bytes tell; `text` are these
/// without a byte order mark.
pub(super) fn format_of(
    path: &str,
    name: &str,
    head: &[u8],
    text: &[u8],
    options: &ReadOptions,
) -> Result<Format, TraceError> {
    let columns = options.columns.as_ref();
    let format = match options.format {
        // `csv` is also what users call our own form; its header tells.
        Some(Format::Csv) if text.starts_with(super::damelo_csv::HEADER) => Format::Damelo,
        Some(format) => format,
        None => match detect(name, head, columns) {
            // The first three bytes of binary records mean something else.
            Ok(binary) if binary.is_binary() => binary,
            // Columns have been named, as if it had any.
            _ if columns.is_some() && is_json(text) => {
                return Err(TraceError::Json { path: path.to_owned() });
            }
            _ => detect(name, text, columns).map_err(|reason| match path.to_owned() {
                path if is_json(text) => TraceError::Json { path },
                path => TraceError::UnknownFormat { path, reason },
            })?,
        },
    };
    let means_nothing = |columns: &ColumnOptions| match format {
        Format::Csv => false,
        Format::Txt => columns.name_columns(),
        _ => true,
    };
    match columns.is_some_and(means_nothing) {
        true => Err(TraceError::NoColumns { path: path.to_owned(), format: format.name() }),
        false => Ok(format),
    }
}

/// That a unit, if one is given, is about times that could have another.
pub(super) fn check_unit(
    path: &str,
    format: Format,
    has_times: bool,
    options: &ReadOptions,
) -> Result<(), TraceError> {
    let reason = match (format, has_times) {
        (Format::Common | Format::Combined, _) => "whose times are dates",
        (Format::Vscsi, _) => "whose times are always microseconds",
        (_, false) => "and has no times",
        _ => return Ok(()),
    };
    match options.time_unit {
        Some(_) => Err(TraceError::NoUnit { path: path.to_owned(), format: format.name(), reason }),
        None => Ok(()),
    }
}

/// How the records lie, of a binary trace.
pub(super) fn layout(
    path: &str,
    format: Format,
    is_named: bool,
    head: &[u8],
) -> Result<Option<Layout>, TraceError> {
    let found = match format {
        Format::OracleGeneral => Ok(Some(Layout::OracleGeneral)),
        Format::Lcs => lcs::version(head).map(|version| Some(Layout::Lcs(version))),
        Format::Vscsi => vscsi::version(head).map(|version| Some(Layout::Vscsi(version))),
        _ => Ok(None),
    };
    found.map_err(|reason| match (path.to_owned(), is_named) {
        (path, false) => TraceError::UnknownFormat { path, reason },
        // To name it is no advice for who has.
        (path, true) => TraceError::OtherFormat { path, format: format.name(), reason },
    })
}

/// What reads the lines of a text format.
pub(super) fn line_parser(
    format: Format,
    head: &[u8],
    options: &ReadOptions,
) -> Result<LineParser, String> {
    let given = options.columns.clone().unwrap_or_default();
    let unit = options.time_unit;
    let (number, first) = match format {
        Format::Csv => first_line(head, options.columns.as_ref()).unwrap_or((1, b"")),
        _ => {
            let lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
            (1..).zip(lines).find(|(_, line)| !line.is_empty()).unwrap_or((1, b""))
        }
    };
    Ok(match format {
        Format::OracleGeneral | Format::Lcs | Format::Vscsi => unreachable!("it has records"),
        Format::Damelo => LineParser::Damelo(unit),
        Format::Squid => LineParser::Squid(unit),
        Format::Common => LineParser::Clf(Tail::Common),
        Format::Combined => LineParser::Clf(Tail::Combined),
        Format::Twr => LineParser::Twr(unit),
        Format::Txt => LineParser::Columns(Columns::whole_line(&given).headed_by_line(number)),
        Format::Csv => {
            let columns = Columns::new(&given, first)?.counting(unit);
            LineParser::Columns(columns.headed_by_line(number))
        }
    })
}
