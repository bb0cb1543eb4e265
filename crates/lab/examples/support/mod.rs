//! A reader of our own CSV form, for examples: `time_s,client,method,status,size_bytes,url`, zstd.

use std::collections::HashMap;
use std::io::Read;

use damelo_lab::{Catalogue, Op, Request};

/// A trace and its names; the largest size of an object is taken for all of its requests if `steady`.
pub(crate) fn read_trace(path: &str) -> std::io::Result<(Vec<Request>, Catalogue)> {
    let mut text = String::new();
    zstd::Decoder::new(std::fs::File::open(path)?)?.read_to_string(&mut text)?;
    let mut names = Catalogue::new();
    let (mut keys, mut hosts, mut clients) = (HashMap::new(), HashMap::new(), HashMap::new());
    let mut requests = Vec::new();
    let mut first_s: Option<f64> = None;
    for line in text.lines().skip(1) {
        let fields: Vec<&str> = line.splitn(6, ',').collect();
        let [time, client, _, _, size, url] = fields[..] else { continue };
        let time_s: f64 = time.parse().unwrap_or(0.0);
        let start_s = *first_s.get_or_insert(time_s);
        let host = url.split('/').nth(2).unwrap_or("");
        let key = *keys.entry(url.to_owned()).or_insert_with(|| names.push_url(url));
        let host = *hosts.entry(host.to_owned()).or_insert_with(|| names.push_host(host));
        let next = clients.len() as u32;
        requests.push(Request {
            time_us: ((time_s - start_s).max(0.0) * 1e6) as u64,
            client: *clients.entry(client.to_owned()).or_insert(next),
            key,
            size_bytes: size.parse().unwrap_or(0),
            host,
            op: Op::Read,
        });
    }
    Ok((requests, names))
}
