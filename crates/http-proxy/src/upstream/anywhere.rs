//! Pools of a forward proxy: one for each recently used origin.
//!
//! Invariant: at most [`POOLS_MAX`] pools are kept; pools without usable connections are dropped
//! first. Threads: belongs to one worker.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::io::locks::lock;
use crate::upstream::endpoint::Endpoint;
use crate::upstream::pool::{Pool, PoolSettings};

/// Pools that one worker keeps.
const POOLS_MAX: usize = 1024;

/// Pools by host and port.
pub(crate) struct AnyPools {
    settings: PoolSettings,
    pools: Mutex<HashMap<(String, u16), Pool>>,
}

impl AnyPools {
    pub(crate) fn new(settings: PoolSettings) -> AnyPools {
        AnyPools { settings, pools: Mutex::default() }
    }

    pub(crate) fn settings(&self) -> &PoolSettings {
        &self.settings
    }

    /// Drops connections that have been idle for too long, and pools that have none.
    pub(crate) fn sweep(&self) {
        lock(&self.pools).retain(|_, pool| !pool.sweep());
    }

    /// The pool of an origin without TLS.
    pub(crate) fn pool(&self, host: &str, port: u16) -> Pool {
        let mut pools = lock(&self.pools);
        if pools.len() >= POOLS_MAX {
            pools.retain(|_, pool| !pool.sweep());
        }
        if pools.len() >= POOLS_MAX {
            // All pools are in use. Requests in flight keep theirs; later requests connect anew.
            pools.clear();
        }
        let endpoint = || Arc::new(Endpoint::plain(host.to_owned(), port));
        let key = (host.to_owned(), port);
        let new = || Pool::new(endpoint(), self.settings.clone());
        pools.entry(key).or_insert_with(new).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::transit::Transit;
    use crate::upstream::limits::TimeLimits;
    use crate::upstream::pool::RestClock;
    use std::time::Duration;

    #[test]
    fn origins_are_remembered_within_bounds() {
        let settings = PoolSettings {
            idle_max: 1,
            idle_timeout: Duration::from_secs(60),
            age_max: Duration::from_secs(3600),
            limits: TimeLimits {
                connect: Duration::from_secs(1),
                origin_header: Duration::from_secs(1),
                total: None,
            },
            header_bytes_max: 8192,
            header_lines_max: 100,
            http2_streams_max: 100,
            http2_ping: None,
            keep_http2: true,
            transit: Arc::new(Transit::new(u64::MAX)),
            rest_clock: RestClock::new(Arc::new(damelo::SystemClock::new())),
        };
        let pools = AnyPools::new(settings);
        for number in 0..POOLS_MAX * 2 {
            pools.pool(&format!("{number}.test"), 80);
            assert!(pools.pools.lock().unwrap().len() <= POOLS_MAX);
        }
    }
}
