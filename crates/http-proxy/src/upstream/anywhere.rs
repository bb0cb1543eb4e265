//! Pools of a forward proxy: one for each recently used origin.
//!
//! Invariant: at most [`POOLS_MAX`] pools are kept; pools without usable connections are dropped
//! first. Threads: belongs to one worker.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::io::locks::lock;
use crate::upstream::endpoint::Endpoint;
use crate::upstream::pool::{Pool, PoolSettings};

/// Pools that one worker keeps.
const POOLS_MAX: usize = 1024;

/// Pools by host and port.
pub(crate) struct AnyPools {
    settings: PoolSettings,
    state: Mutex<State>,
}

struct State {
    pools: HashMap<(String, u16), Pool>,
    swept: Instant,
}

impl AnyPools {
    pub(crate) fn new(settings: PoolSettings) -> AnyPools {
        let state = State { pools: HashMap::new(), swept: Instant::now() };
        AnyPools { settings, state: Mutex::new(state) }
    }

    /// The pool of an origin without TLS.
    pub(crate) fn pool(&self, host: &str, port: u16) -> Pool {
        let mut state = lock(&self.state);
        let old = state.swept.elapsed() >= self.settings.idle_timeout;
        if old || state.pools.len() >= POOLS_MAX {
            state.pools.retain(|_, pool| !pool.sweep());
            state.swept = Instant::now();
        }
        if state.pools.len() >= POOLS_MAX {
            // All pools are in use. Requests in flight keep theirs; later requests connect anew.
            state.pools.clear();
        }
        let endpoint = || Arc::new(Endpoint::plain(host.to_owned(), port));
        let key = (host.to_owned(), port);
        let new = || Pool::new(endpoint(), self.settings.clone());
        state.pools.entry(key).or_insert_with(new).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::transit::Transit;
    use std::time::Duration;

    #[test]
    fn origins_are_remembered_within_bounds() {
        let settings = PoolSettings {
            idle_max: 1,
            idle_timeout: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(1),
            origin_header_timeout: Duration::from_secs(1),
            header_bytes_max: 8192,
            header_lines_max: 100,
            http2_streams_max: 100,
            http2_ping: None,
            keep_http2: true,
            transit: Arc::new(Transit::new(u64::MAX)),
        };
        let pools = AnyPools::new(settings);
        for number in 0..POOLS_MAX * 2 {
            pools.pool(&format!("{number}.test"), 80);
            assert!(pools.state.lock().unwrap().pools.len() <= POOLS_MAX);
        }
    }
}
