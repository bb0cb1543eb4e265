//! Synthetic requests for papers whose traces cannot be had and when no trace is given: pages with
//! embedded objects on hosts of Zipf-like popularity. Declared as synthetic wherever it is used.
//!
//! Invariant: the same parameters and seed give the same requests. Threads: plain functions.

use crate::lru::NumberMap;
use crate::request::{Catalogue, Op, Request};

/// Shape of a web-like workload.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WebLike {
    /// Requests to make, at least.
    pub requests: usize,
    /// Hosts.
    pub hosts: u32,
    /// Pages of a host.
    pub pages_per_host: u32,
    /// Slope of the popularity of hosts and of the pages of a host (Maltzahn §2.2: 0.64 to 0.83).
    pub slope: f64,
    /// Clients.
    pub clients: u32,
    /// Seed.
    pub seed: u64,
}

impl WebLike {
    /// So many requests in proportions like those of the papers' proxies.
    pub fn new(requests: usize, seed: u64) -> WebLike {
        let hosts = (requests / 40).max(8) as u32;
        WebLike { requests, hosts, pages_per_host: 24, slope: 0.8, clients: 200, seed }
    }
}

/// Numbers 0 to n - 1 with Zipf-like popularity, by inversion of the continuous law.
fn zipf(rng: &mut fastrand::Rng, n: u32, slope: f64) -> u32 {
    let power = 1.0 - slope;
    let top = f64::from(n).powf(power);
    let x = (1.0 + rng.f64() * (top - 1.0)).powf(1.0 / power);
    (x as u32).clamp(1, n) - 1
}

/// Sizes whose body is log-normal and whose tail is Pareto: about three quarters up to 8 KB.
fn size(rng: &mut fastrand::Rng) -> u64 {
    if rng.u8(0..100) < 7 {
        return ((16_000.0 / (1.0 - rng.f64()).powf(1.0 / 1.1)) as u64).min(2 << 20);
    }
    let normal = (0..12).map(|_| rng.f64()).sum::<f64>() - 6.0;
    ((8.1 + 1.2 * normal).exp() as u64).clamp(64, 1 << 20)
}

/// Pages with embedded objects; a request for a page is followed by those for what it holds.
pub fn web_like(shape: WebLike) -> (Vec<Request>, Catalogue) {
    let mut rng = fastrand::Rng::with_seed(shape.seed);
    let mut names = Catalogue::new();
    for host in 0..shape.hosts {
        names.push_host(format!("host{host}.example").as_bytes());
    }
    let mut keys: NumberMap<u64, (u64, u64)> = NumberMap::default();
    let mut requests = Vec::with_capacity(shape.requests + 16);
    let mut time_us = 0;
    while requests.len() < shape.requests {
        let client = rng.u32(0..shape.clients);
        let host = zipf(&mut rng, shape.hosts, shape.slope);
        let page = zipf(&mut rng, shape.pages_per_host, shape.slope);
        // A page's number of objects is its own; a third of them is shared by pages of the host.
        let embedded = (host.wrapping_mul(31) ^ page.wrapping_mul(17)) % 9;
        for object in 0..=embedded {
            let shared = object % 3 == 2;
            let owner = if shared { u32::MAX } else { page };
            let id = u64::from(host) << 40 | u64::from(owner & 0xffff) << 16 | u64::from(object);
            let next = (names.urls_len(), size(&mut rng));
            let (key, size_bytes) = *keys.entry(id).or_insert_with(|| {
                let end = if object == 0 { "index.html" } else { "image.gif" };
                let url = format!("http://host{host}.example/d{owner}/{object}-{end}");
                names.push_url(url.as_bytes());
                next
            });
            requests.push(Request { time_us, client, key, size_bytes, host, op: Op::Read });
            time_us += rng.u64(20_000..400_000);
        }
        time_us += rng.u64(0..2_000_000);
    }
    (requests, names)
}
