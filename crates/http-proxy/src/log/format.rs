//! The formats of access log lines. Pure functions; no threads.
//!
//! Invariants: whatever the client sent, a request is one line and its fields keep their bounds:
//! control characters, quotes and backslashes are escaped or replaced as each format requires.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use http::{HeaderValue, StatusCode};

use super::LogRecord;
use crate::config::LogFormat;
use crate::metrics::BrokenBy;

/// Bytes of a header field that are logged: a client may fill all of its headers with one, and each
/// byte may take four.
const FIELD_BYTES_MAX: usize = 4 << 10;

/// The line, without the newline.
pub(super) fn line(record: &LogRecord, took: Duration) -> String {
    match record.format {
        LogFormat::Combined => combined(record, took),
        LogFormat::Squid => squid(record, took),
        LogFormat::Json => json(record, took),
    }
}

/// Apache's combined format, followed by the cache's result and the time in milliseconds.
fn combined(record: &LogRecord, took: Duration) -> String {
    format!(
        "{} - {} [{}] \"{} {} {:?}\" {} {} \"{}\" \"{}\" {} {:.3}",
        client(record),
        user(record),
        clf_time(record.start_unix_ms),
        record.method,
        escaped(record.target.as_bytes()),
        record.version,
        record.status_code(),
        record.body_bytes,
        field(record.referer.as_ref()),
        field(record.user_agent.as_ref()),
        record.result,
        took.as_secs_f64() * 1000.0,
    )
}

/// The client's address, which is never that of a proxy that speaks of somebody else.
fn client(record: &LogRecord) -> Cow<'static, str> {
    record.client.map_or(Cow::Borrowed("-"), |client| Cow::Owned(client.to_string()))
}

/// `06/Nov/1994:08:49:37 +0000`.
fn clf_time(unix_ms: u64) -> String {
    // httpdate supports dates up to 9999-12-31.
    let seconds = (unix_ms / 1000).min(253_402_300_799);
    let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds));
    // `Sun, 06 Nov 1994 08:49:37 GMT`
    let mut words = date.split(' ').skip(1);
    let mut word = || words.next().unwrap_or_default();
    format!("{}/{}/{}:{} +0000", word(), word(), word(), word())
}

/// The user's name, escaped: a password file may contain any characters in it.
fn user(record: &LogRecord) -> String {
    match record.user.as_deref() {
        None | Some("") => "-".to_owned(),
        Some(name) => without_blanks(&escaped(name.as_bytes())),
    }
}

fn field(value: Option<&HeaderValue>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| escaped(beginning(value)))
}

/// What is logged of a field.
fn beginning(value: &HeaderValue) -> &[u8] {
    let bytes = value.as_bytes();
    bytes.get(..FIELD_BYTES_MAX).unwrap_or(bytes)
}

/// Apache's escapes: each byte that is not printable ASCII becomes `\xhh`, whatever its encoding.
fn escaped(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'"' | b'\\' => out.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => out.push(char::from(*byte)),
            // Writing to a String cannot fail.
            _ => drop(write!(out, "\\x{byte:02x}")),
        }
    }
    out
}

/// Squid's native format:
/// `time elapsed client result/status bytes method URL user hierarchy/peer type`.
fn squid(record: &LogRecord, took: Duration) -> String {
    let (code, asked) = squid_code(record.result, record.status);
    let broken = match record.broken_by {
        None => "",
        Some(BrokenBy::Timeout) => "_TIMEDOUT",
        Some(_) => "_ABORTED",
    };
    let peer = match asked {
        true if record.is_forward => format!("HIER_DIRECT/{}", record.origin),
        true => match record.notes.asked() {
            Some(asked) => format!("FIRSTUP_PARENT/{}", without_blanks(&asked.origin)),
            None => format!("FIRSTUP_PARENT/{}", record.origin),
        },
        false => "HIER_NONE/-".to_owned(),
    };
    let host = record.host.as_ref().unwrap_or(&record.origin);
    let media_type = record.media_type.as_ref().and_then(|value| value.to_str().ok());
    let media_type = media_type.and_then(|text| text.split(';').next()).unwrap_or("-");
    let target = if record.target.starts_with('/') {
        format!("{}://{host}{}", record.scheme, record.target)
    } else {
        record.target.clone()
    };
    format!(
        "{}.{:03} {:>6} {} {code}{broken}/{:03} {} {} {} {} {peer} {}",
        record.start_unix_ms / 1000,
        record.start_unix_ms % 1000,
        took.as_millis(),
        client(record),
        record.status.map_or(0, |status| status.as_u16()),
        record.body_bytes,
        record.method,
        encoded_blanks(&target),
        user(record),
        without_blanks(media_type),
    )
}

/// Squid's result code, and whether the origin was asked.
fn squid_code(result: &str, status: Option<StatusCode>) -> (&'static str, bool) {
    match result {
        "hit" if status == Some(StatusCode::NOT_MODIFIED) => ("TCP_IMS_HIT", false),
        "hit" => ("TCP_HIT", false),
        "collapsed" => ("TCP_CF_HIT", true),
        "revalidated" => ("TCP_REFRESH_UNMODIFIED", true),
        "request-revalidated" => ("TCP_CLIENT_REFRESH_MISS", true),
        "request" => ("TCP_CLIENT_REFRESH_MISS", true),
        "stale" => ("TCP_REFRESH_MODIFIED", true),
        "none" | "respond" => ("NONE_NONE", false),
        "denied" => ("TCP_DENIED", false),
        "tunnel" => ("TCP_TUNNEL", true),
        _ => ("TCP_MISS", true),
    }
}

/// A URL in one word. As in Squid's log, what would end the word or the line is written as `%XX`,
/// of which the URL can be told again, and other bytes as they came.
fn encoded_blanks(url: &str) -> String {
    let mut out = String::with_capacity(url.len());
    for c in url.chars() {
        if c.is_whitespace() || c.is_control() {
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                // Writing to a String cannot fail.
                let _ = write!(out, "%{byte:02X}");
            }
        } else {
            out.push(c);
        }
    }
    out
}

fn without_blanks(text: &str) -> String {
    text.chars().map(|c| if c.is_whitespace() || c.is_control() { '_' } else { c }).collect()
}

/// With three digits behind the point.
fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1_000_000.0).round() / 1000.0
}

fn json(record: &LogRecord, took: Duration) -> String {
    let text = |value: &Option<HeaderValue>| {
        value.as_ref().map(|value| String::from_utf8_lossy(beginning(value)).into_owned())
    };
    let asked = record.notes.asked();
    let mut line = serde_json::json!({
        "time": record.start_unix_ms as f64 / 1000.0,
        "client": record.client.map(|client| client.to_string()),
        "method": record.method.as_str(),
        "scheme": record.scheme,
        "host": record.host,
        "target": record.target,
        "version": format!("{:?}", record.version),
        "user": record.user,
        "status": record.status_code(),
        "ended": record.broken_by.map_or("complete", BrokenBy::name),
        "result": record.result,
        "bytes": record.body_bytes,
        "milliseconds": millis(took),
        "first_byte_ms": record.first_byte.map(millis),
        "origin": asked.as_ref().map(|asked| &*asked.origin),
        "origin_status": asked.as_ref().and_then(|asked| asked.status).map(|code| code.as_u16()),
        "detail": record.detail,
        "tls_version": record.tls_version,
        "type": text(&record.media_type),
        "referer": text(&record.referer),
        "user_agent": text(&record.user_agent),
    });
    if let Some(id) = &record.request_id {
        line["request_id"] = id.as_ref().into();
    }
    line.to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::LogTarget;
    use crate::log::AccessLog;

    fn record(format: LogFormat) -> LogRecord {
        let (log, _) = AccessLog::start(&LogTarget::File("/dev/null".into())).unwrap();
        LogRecord {
            log,
            format,
            counters: Arc::default(),
            start: std::time::Instant::now(),
            start_unix_ms: 784_111_777_042,
            client: Some([10, 0, 0, 9].into()),
            user: None,
            method: http::Method::GET,
            version: http::Version::HTTP_11,
            scheme: "http",
            is_forward: false,
            host: Some("example.org".to_owned()),
            target: "/a?b=\"c".to_owned(),
            referer: None,
            user_agent: Some(HeaderValue::from_bytes(b"a \"b\" \\ \xff\t\xc3\xa9").unwrap()),
            status: Some(StatusCode::OK),
            media_type: Some(HeaderValue::from_static("text/html; charset=utf-8")),
            origin: "10.0.0.5:8000".to_owned(),
            notes: Arc::default(),
            first_byte: None,
            detail: None,
            tls_version: None,
            result: "uri-miss",
            body_bytes: 1234,
            broken_by: None,
            request_id: None,
        }
    }

    #[test]
    fn combined_lines() {
        assert_eq!(
            line(&record(LogFormat::Combined), Duration::from_micros(1500)),
            "10.0.0.9 - - [06/Nov/1994:08:49:37 +0000] \"GET /a?b=\\\"c HTTP/1.1\" 200 1234 \"-\" \
             \"a \\\"b\\\" \\\\ \\xff\\x09\\xc3\\xa9\" uri-miss 1.500"
        );
        let mut foreign = record(LogFormat::Combined);
        foreign.target = "/\u{e9}\u{85}".to_owned();
        let text = line(&foreign, Duration::ZERO);
        assert!(text.contains("\"GET /\\xc3\\xa9\\xc2\\x85 HTTP/1.1\""), "{text}");
    }

    #[test]
    fn squid_lines() {
        assert_eq!(
            line(&record(LogFormat::Squid), Duration::from_micros(1500)),
            "784111777.042      1 10.0.0.9 TCP_MISS/200 1234 GET http://example.org/a?b=\"c - \
             FIRSTUP_PARENT/10.0.0.5:8000 text/html"
        );
        let mut hit = record(LogFormat::Squid);
        hit.result = "hit";
        hit.status = Some(StatusCode::NOT_MODIFIED);
        assert!(line(&hit, Duration::ZERO).contains("TCP_IMS_HIT/304"));
        assert!(line(&hit, Duration::ZERO).contains("HIER_NONE/-"));
        hit.scheme = "https";
        assert!(line(&hit, Duration::ZERO).contains(" GET https://example.org/a?b="));
        let second = record(LogFormat::Squid);
        second.notes.asks(&"10.0.0.6:8000".into());
        assert!(line(&second, Duration::ZERO).contains(" - FIRSTUP_PARENT/10.0.0.6:8000 "));
        let mut direct = record(LogFormat::Squid);
        direct.is_forward = true;
        assert!(line(&direct, Duration::ZERO).contains(" - HIER_DIRECT/10.0.0.5:8000 "));
        let mut broken = record(LogFormat::Squid);
        broken.broken_by = Some(BrokenBy::Client);
        assert!(line(&broken, Duration::ZERO).contains(" TCP_MISS_ABORTED/200 "));
        broken.broken_by = Some(BrokenBy::Timeout);
        assert!(line(&broken, Duration::ZERO).contains(" TCP_MISS_TIMEDOUT/200 "));
        (broken.status, broken.result) = (None, "none");
        broken.broken_by = Some(BrokenBy::Client);
        assert!(line(&broken, Duration::ZERO).contains(" NONE_NONE_ABORTED/000 "));
        let mut foreign = record(LogFormat::Squid);
        foreign.target = "/\u{e9}\u{85}\u{2003}".to_owned();
        let text = line(&foreign, Duration::ZERO);
        assert!(text.contains(" http://example.org/\u{e9}%C2%85%E2%80%83 - "), "{text}");
        let mut named = record(LogFormat::Squid);
        named.user = Some("a b\n".to_owned());
        assert!(line(&named, Duration::ZERO).contains("?b=\"c a_b\\x0a FIRSTUP_PARENT/"));
    }

    #[test]
    fn json_lines_parse() {
        let text = line(&record(LogFormat::Json), Duration::from_micros(1500));
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["target"], "/a?b=\"c");
        assert_eq!((&value["scheme"], &value["host"]), (&"http".into(), &"example.org".into()));
        assert_eq!(value["milliseconds"], 1.5);
        assert_eq!(value["time"], 784_111_777.042);
        assert!(value["referer"].is_null() && value["user"].is_null());
        assert_eq!(value["ended"], "complete");
        for unknown in ["origin", "origin_status", "first_byte_ms", "detail", "tls_version"] {
            assert!(value.get(unknown).is_some_and(serde_json::Value::is_null), "{unknown}");
        }
        let mut gone = record(LogFormat::Json);
        (gone.status, gone.broken_by) = (None, Some(BrokenBy::Client));
        let value: serde_json::Value = serde_json::from_str(&line(&gone, Duration::ZERO)).unwrap();
        assert_eq!((&value["status"], &value["ended"]), (&499.into(), &"client".into()));
        gone.counters.cut_off();
        gone.broken_by = Some(gone.counters.blamed(BrokenBy::Client));
        let value: serde_json::Value = serde_json::from_str(&line(&gone, Duration::ZERO)).unwrap();
        assert_eq!((&value["status"], &value["ended"]), (&444.into(), &"timeout".into()));
    }

    #[test]
    fn of_a_long_field_the_beginning_is_logged() {
        for format in [LogFormat::Combined, LogFormat::Json] {
            let mut long = record(format);
            long.referer = Some(
                HeaderValue::from_bytes(&[b"http://a/", &[b'x'; 200_000][..]].concat()).unwrap(),
            );
            long.user_agent = Some(HeaderValue::from_bytes(&[0xff; 200_000]).unwrap());
            let text = line(&long, Duration::ZERO);
            assert!(
                text.contains("http://a/xx") && text.len() < 6 * FIELD_BYTES_MAX,
                "{}",
                text.len()
            );
        }
    }

    #[test]
    fn the_document_shows_these_lines_and_words() {
        let document = include_str!("../../../../docs/operations.md");
        for format in [LogFormat::Combined, LogFormat::Squid, LogFormat::Json] {
            let mut shown = record(format);
            shown.client = Some([192, 0, 2, 7].into());
            shown.version = http::Version::HTTP_2;
            shown.scheme = "https";
            shown.host = Some("www.example.org".to_owned());
            shown.target = "/news/1?p=2".to_owned();
            shown.referer = Some(HeaderValue::from_static("https://www.example.org/"));
            shown.user_agent = Some(HeaderValue::from_static("Mozilla/5.0"));
            shown.media_type = Some(HeaderValue::from_static("text/html"));
            shown.notes.asks(&"127.0.0.1:8000".into());
            shown.notes.answered(StatusCode::OK);
            shown.first_byte = Some(Duration::from_micros(1250));
            shown.tls_version = Some("TLSv1.3");
            let line = line(&shown, Duration::from_micros(1500));
            assert!(document.contains(&format!("\n{line}\n")), "not in the document:\n{line}");
        }
        let table = document.split("| `result` |").nth(1).unwrap();
        let table = table.split("\n\n").next().unwrap();
        for row in table.lines().skip(2) {
            let mut cells = row.split('|').map(|cell| cell.trim().trim_matches('`'));
            let (word, squid) = (cells.nth(1).unwrap(), cells.next().unwrap());
            let (code, _) = squid_code(word, Some(StatusCode::OK));
            assert!(squid.starts_with(code), "{word} is {code}, not {squid}");
        }
    }
}
