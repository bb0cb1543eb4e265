//! What an unsafe request may have changed: URLs, and the keys that GETs of them are stored under.
//!
//! Invariant: where rules let more than the URL decide on the key (its headers, say), there is none
//! and the URL must be marked instead. Marks are dear: beyond some thousands they cover more than
//! they were set for. Pure.

use http::HeaderMap;

use crate::request::Ask;
use crate::rules::invalidation;
use crate::ruleset::RequestView;
use crate::worker::Shared;

/// A URL that an unsafe request may have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Written {
    /// Its key without what rules add: what every key of the URL begins with.
    pub(crate) url: Vec<u8>,
    /// The one key that its GETs are stored under; `None` if more than the URL decides.
    pub(crate) key: Option<Vec<u8>>,
}

impl Ask {
    /// The target of the request.
    pub(crate) fn target_written(&self, shared: &Shared) -> Written {
        self.written(shared, self.target.path_and_query.as_str())
    }

    /// The same-origin URLs that a response to this request names, and the one that the request
    /// itself writes to besides its target; not the target.
    pub(crate) fn named_written(&self, shared: &Shared, response: &HeaderMap) -> Vec<Written> {
        let base = self.base(shared.sites.get(self.site).name());
        let paths = invalidation::named(base, response);
        let paths = paths.filter(|path| path != self.target.path_and_query.as_str());
        let named = paths.map(|path| self.written(shared, &path));
        named.chain(self.destination_written(shared)).collect()
    }

    /// The same-origin URL that a copy or move writes to.
    pub(crate) fn destination_written(&self, shared: &Shared) -> Option<Written> {
        let base = self.base(shared.sites.get(self.site).name());
        let path = invalidation::destination(base, &self.method, &self.headers)?;
        Some(self.written(shared, &path))
    }

    fn written(&self, shared: &Shared, path_and_query: &str) -> Written {
        let config = &shared.config;
        let url = config.caching.key.primary(self.target.scheme, &self.target.host, path_and_query);
        let effects = config.ruleset.on_get_of(&RequestView { path_and_query, ..self.view() });
        let key = effects.map(|effects| {
            let mut key = url.clone();
            effects.extend_key(&HeaderMap::new(), &mut key);
            key
        });
        Written { url, key }
    }
}
