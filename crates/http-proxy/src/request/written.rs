//! What an unsafe request may have changed: URLs, and the keys that GETs of them are stored under.
//!
//! Invariant: where rules let more than the URL decide on the key (its headers, say), there is none
//! and the URL must be marked instead. Marks are dear: beyond some thousands they cover more than
//! they were set for. Pure.

use http::HeaderMap;

use crate::request::Ask;
use crate::request::naming::{self, Naming};
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
        let named = invalidation::named(base, response).map(|path| self.written(shared, &path));
        let target = self.target_written(shared);
        named.chain(self.destination_written(shared)).filter(|one| one.url != target.url).collect()
    }

    /// The same-origin URL that a copy or move writes to.
    pub(crate) fn destination_written(&self, shared: &Shared) -> Option<Written> {
        let base = self.base(shared.sites.get(self.site).name());
        let path = invalidation::destination(base, &self.method, &self.headers)?;
        Some(self.written(shared, &path))
    }

    fn written(&self, shared: &Shared, path_and_query: &str) -> Written {
        let asked = (self.scheme_asked(), self.host_asked());
        let name = (self.target.scheme, self.target.host.as_str());
        let url = naming::primary_key(&shared.config, asked, name, path_and_query);
        let rules = &shared.config.ruleset;
        let effects = match has_every_part(shared) {
            true => rules.on_get_of(&RequestView { path_and_query, ..self.view() }),
            false => None,
        };
        let key = effects.map(|effects| {
            let mut key = url.clone();
            effects.extend_key(&HeaderMap::new(), &mut key);
            key
        });
        Written { url, key }
    }
}

/// Whether keys have every part of a URL by which rules decide on them: another host, say, may have
/// the same key but for what the rules add.
fn has_every_part(shared: &Shared) -> bool {
    let decided_by = shared.config.ruleset.decided_by();
    let naming = Naming::of(shared);
    (!decided_by.scheme || naming.has_schemes())
        && (!decided_by.host || naming.has_hosts())
        && (!decided_by.query || naming::keeps_queries(&shared.config))
}
