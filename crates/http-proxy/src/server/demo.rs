//! The built-in demo origin behind `--to demo`: a page, images, a slow answer and a big file.
//!
//! The page's script shows the `Cache-Status` of each part of the page. Invariant: responses with
//! an ETag or a date are the same at every start, so validators hold across restarts. Threads: one,
//! with its own event loop.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::TcpListener as StdListener;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LAST_MODIFIED, VARY};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::rules::preconditions::{self, Outcome};

/// Delay of the response to `/slow`.
const SLOW: Duration = Duration::from_secs(1);
/// Size of `/big`.
const BIG_BYTES: usize = 8 << 20;
const IMAGES: u32 = 6;
/// Fills the page's table with the `Cache-Status` and `Age` of each part.
const SCRIPT: &str = include_str!("demo.js");
const MODIFIED: &str = "Sat, 01 Nov 2025 12:00:00 GMT";

type Page = (StatusCode, &'static [(HeaderName, &'static str)], Bytes);

/// Serves until the event loop ends.
pub(crate) async fn serve(listener: StdListener) {
    // The caller has made the listener non-blocking.
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Most likely the process is out of descriptors, and only waiting helps.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        tokio::spawn(async move {
            // A broken connection concerns only its client.
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service_fn(answer))
                .await;
        });
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path();
    if path == "/slow" {
        tokio::time::sleep(SLOW).await;
    }
    let allowed = [Method::GET, Method::HEAD, Method::POST].contains(request.method());
    let (mut status, lines, mut body) =
        if allowed { page(path) } else { (StatusCode::METHOD_NOT_ALLOWED, &[][..], Bytes::new()) };
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if request.headers().contains_key(IF_NONE_MATCH)
        && not_modified(request.method(), request.headers(), status, &headers)
    {
        status = StatusCode::NOT_MODIFIED;
        body = Bytes::new();
    }
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Ok(response)
}

/// Evaluates `If-None-Match`, which does not depend on the response time: 0 stands for it.
fn not_modified(
    method: &Method,
    request: &HeaderMap,
    status: StatusCode,
    headers: &HeaderMap,
) -> bool {
    preconditions::evaluate(method, request, status, headers, 0) == Outcome::NotModified
}

fn page(path: &str) -> Page {
    if let Some(number) = path.strip_prefix("/img/").and_then(|n| n.strip_suffix(".svg"))
        && let Ok(number) = number.parse::<u32>()
        && number < IMAGES
    {
        return image(number);
    }
    match path {
        "/" => html(),
        "/style.css" => css(),
        "/demo.js" => script(),
        "/slow" => slow(),
        "/api/time" => time(),
        "/hello" => hello(),
        "/big" => big(),
        _ => (
            StatusCode::NOT_FOUND,
            const { &[(CACHE_CONTROL, "max-age=10"), (CONTENT_TYPE, "text/plain")] },
            Bytes::from_static(b"Nothing here. Try / /style.css /img/0.svg /slow /api/time /big\n"),
        ),
    }
}

fn html() -> Page {
    let mut text = String::from(
        "<!doctype html><html lang=en><meta charset=utf-8><title>damelo demo</title>\
         <link rel=stylesheet href=/style.css><script src=/demo.js defer></script><h1>damelo demo</h1>\
         <p>This page and its images form one group: they lie together on disk and come into \
         memory with one read. <a href=/slow>/slow</a> takes a second the first time, \
         <a href=/api/time>/api/time</a> is never stored, <a href=/big>/big</a> is 8 MiB.</p><p>",
    );
    for number in 0..IMAGES {
        // Writing to a String cannot fail.
        let _ = write!(text, "<img src=/img/{number}.svg alt='' width=120 height=120>");
    }
    text.push_str(
        "</p><table><caption>What the cache did when this browser last asked</caption>\
         <thead><tr><th>path<th>Cache-Status<th>Age</thead><tbody></tbody></table></html>\n",
    );
    let headers = const {
        &[
            (CONTENT_TYPE, "text/html; charset=utf-8"),
            (CACHE_CONTROL, "max-age=60"),
            (ETAG, "\"page-2\""),
            (LAST_MODIFIED, MODIFIED),
        ]
    };
    (StatusCode::OK, headers, text.into())
}

fn css() -> Page {
    let headers = const {
        &[
            (CONTENT_TYPE, "text/css"),
            (CACHE_CONTROL, "public, max-age=3600"),
            (ETAG, "\"style-2\""),
        ]
    };
    let text = "body{font:16px/1.5 sans-serif;max-width:50rem;margin:3rem auto;padding:0 1rem}\
                img{margin:.3rem;border-radius:1rem}\
                caption,th,td{padding:.1rem 1rem .1rem 0;text-align:left}\n";
    (StatusCode::OK, headers, Bytes::from_static(text.as_bytes()))
}

fn script() -> Page {
    let headers = const {
        &[
            (CONTENT_TYPE, "text/javascript; charset=utf-8"),
            (CACHE_CONTROL, "public, max-age=3600"),
            (ETAG, "\"script-1\""),
        ]
    };
    (StatusCode::OK, headers, Bytes::from_static(SCRIPT.as_bytes()))
}

fn image(number: u32) -> Page {
    let hue = number * 360 / IMAGES;
    let mut text = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 120 120'>\
         <rect width='120' height='120' fill='hsl({hue},60%,85%)'/>"
    );
    for ring in 0..60 {
        let (x, y) = (60 + (ring * 7 + number * 13) % 41 - 20, 60 + (ring * 11) % 37 - 18);
        let _ = write!(
            text,
            "<circle cx='{x}' cy='{y}' r='{}' fill='none' stroke='hsl({},70%,45%)'/>",
            5 + ring % 40,
            (hue + ring * 3) % 360
        );
    }
    text.push_str("</svg>\n");
    let headers = const {
        &[
            (CONTENT_TYPE, "image/svg+xml"),
            (CACHE_CONTROL, "public, max-age=86400"),
            (LAST_MODIFIED, MODIFIED),
        ]
    };
    (StatusCode::OK, headers, text.into())
}

fn slow() -> Page {
    let headers = const {
        &[
            (CONTENT_TYPE, "text/plain"),
            (CACHE_CONTROL, "s-maxage=30, max-age=5"),
            (ETAG, "\"slow-1\""),
        ]
    };
    (StatusCode::OK, headers, Bytes::from_static(b"This took the origin a second.\n"))
}

fn time() -> Page {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let headers = const { &[(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")] };
    (StatusCode::OK, headers, format!("{{\"unix_seconds\":{seconds}}}\n").into())
}

fn hello() -> Page {
    let headers = const {
        &[(CONTENT_TYPE, "text/plain"), (CACHE_CONTROL, "max-age=60"), (VARY, "Accept-Language")]
    };
    (StatusCode::OK, headers, Bytes::from_static(b"Hello, stored once per Accept-Language.\n"))
}

fn big() -> Page {
    let mut body = Vec::with_capacity(BIG_BYTES);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    while body.len() < BIG_BYTES {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        body.extend_from_slice(&state.to_le_bytes());
    }
    let headers = const {
        &[
            (CONTENT_TYPE, "application/octet-stream"),
            (CACHE_CONTROL, "max-age=600"),
            (ETAG, "\"big-1\""),
        ]
    };
    (StatusCode::OK, headers, body.into())
}
