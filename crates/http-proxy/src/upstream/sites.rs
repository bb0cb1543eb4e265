//! The sites that a proxy serves: its main site, and those that its rules name.
//!
//! Invariant: a reload that does not change a site's origins keeps the site, with the load and
//! health of its endpoints. Threads: immutable, shared by all workers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use crate::config::transport::Upstream;
use crate::error::ProxyError;
use crate::metrics::exposition::OriginState;
use crate::ruleset::{Ruleset, SiteId};
use crate::upstream::endpoint::Origin;

/// All sites.
pub(crate) struct Sites {
    main: Arc<Origin>,
    /// The proxy is a forward proxy: clients name the origins, rules do not.
    is_forward: bool,
    /// Each site's URLs and origin, in the order of `Ruleset::sites`.
    ruled: Vec<(Vec<String>, Arc<Origin>)>,
}

impl Sites {
    /// The proxy's main site alone.
    pub(crate) fn new(main: Origin, is_forward: bool) -> Sites {
        Sites { main: Arc::new(main), is_forward, ruled: Vec::new() }
    }

    /// A copy in which the sites of these rules replace the sites of earlier rules.
    pub(crate) fn with(&self, rules: &Ruleset, upstream: &Upstream) -> Result<Sites, ProxyError> {
        if self.is_forward && (!rules.sites().is_empty() || rules.changes_prefixes()) {
            return Err(ProxyError::RuleInForward);
        }
        let ruled = rules.sites().iter().map(|urls| {
            let known = self.ruled.iter().find(|(known, _)| known == urls);
            let site = match known {
                Some((_, site)) => site.clone(),
                None => Arc::new(Origin::of_urls(urls, upstream)?),
            };
            Ok((urls.clone(), site))
        });
        let ruled = ruled.collect::<Result<_, ProxyError>>()?;
        Ok(Sites { main: self.main.clone(), is_forward: self.is_forward, ruled })
    }

    pub(crate) fn main(&self) -> &Arc<Origin> {
        &self.main
    }

    /// The site with this number, which must come from the rules that `self` was made with.
    pub(crate) fn get(&self, site: SiteId) -> &Arc<Origin> {
        site.among_ruled().map_or(&self.main, |place| &self.ruled[place].1)
    }

    /// State of all configured origins, sorted by URL, each URL once; empty for a forward proxy.
    pub(crate) fn origins(&self, now: Instant) -> Vec<OriginState> {
        let mut origins = BTreeMap::new();
        let sites = self.all().filter(|_| !self.is_forward);
        for endpoint in sites.flat_map(|site| &site.endpoints) {
            let (is_healthy, load) = (endpoint.health().is_healthy(now), endpoint.load() as u64);
            origins
                .entry(endpoint.url())
                .and_modify(|(healthy, open)| {
                    (*healthy, *open) = (*healthy && is_healthy, *open + load)
                })
                .or_insert((is_healthy, load));
        }
        let state = |(url, (is_healthy, requests_open)): (&str, _)| OriginState {
            url: url.to_owned(),
            is_healthy,
            requests_open,
        };
        origins.into_iter().map(state).collect()
    }

    /// All sites, the main site first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Origin>> {
        [&self.main].into_iter().chain(self.ruled.iter().map(|(_, site)| site))
    }
}
