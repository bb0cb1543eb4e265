//! The sites that a proxy serves: its main site, and those that its rules name.
//!
//! Invariants: an origin is one endpoint, with one load, limit and health, of however many sites;
//! a reload that does not change it keeps it. Threads: immutable, shared by all workers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use crate::config::{OriginTarget, ProxyConfig};
use crate::error::ProxyError;
use crate::metrics::exposition::OriginState;
use crate::ruleset::SiteId;
use crate::upstream::endpoint::{Endpoint, Endpoints, Origin, check_authorities};

/// All sites.
pub(crate) struct Sites {
    /// URL of the main site's first origin; the demo's differs at each start.
    main_url: String,
    main: Arc<Origin>,
    /// The proxy is a forward proxy: clients name the origins, rules do not.
    is_forward: bool,
    /// The sites of the rules, in the order of `Ruleset::sites`.
    ruled: Vec<Arc<Origin>>,
}

impl Sites {
    /// The sites of this configuration; `main_url` is the demo's URL if that is the origin.
    pub(crate) fn new(
        config: &ProxyConfig,
        main_url: &str,
        is_forward: bool,
    ) -> Result<Sites, ProxyError> {
        Sites::make(config, main_url, is_forward, Vec::new())
    }

    /// The sites of a configuration that replaces that of these, with the endpoints that it does
    /// not change.
    pub(crate) fn with(&self, config: &ProxyConfig) -> Result<Sites, ProxyError> {
        let main_url = match &config.to {
            OriginTarget::Url(url) => url,
            OriginTarget::Demo => &self.main_url,
        };
        let known = self.all().flat_map(|site| site.endpoints.iter().cloned()).collect();
        Sites::make(config, main_url, self.is_forward, known)
    }

    fn make(
        config: &ProxyConfig,
        main_url: &str,
        is_forward: bool,
        known: Vec<Arc<Endpoint>>,
    ) -> Result<Sites, ProxyError> {
        let rules = &config.ruleset;
        if is_forward && (!rules.sites().is_empty() || rules.changes_prefixes()) {
            return Err(ProxyError::RuleInForward);
        }
        let mut endpoints = Endpoints::new(&config.upstream, known);
        let mut main = Origin::new(main_url, &mut endpoints)?;
        if config.to == OriginTarget::Demo {
            // The demo's port differs at each start; its objects are the same.
            "demo".clone_into(&mut main.authority);
        }
        let ruled = rules.sites().iter();
        let ruled = ruled.map(|site| Origin::of_site(site, &mut endpoints).map(Arc::new));
        let ruled = ruled.collect::<Result<_, ProxyError>>()?;
        Ok(Sites { main_url: main_url.to_owned(), main: Arc::new(main), is_forward, ruled })
    }

    /// Checks whether these could be made.
    pub(crate) fn check(config: &ProxyConfig) -> Result<(), ProxyError> {
        // Used for https origins only, but a reload may add some.
        config.upstream.authorities.as_deref().map(check_authorities).transpose()?;
        let mut endpoints = Endpoints::new(&config.upstream, Vec::new());
        if let OriginTarget::Url(url) = &config.to {
            Origin::new(url, &mut endpoints)?;
        }
        let mut of_rules = config.ruleset.sites().iter();
        of_rules.try_for_each(|site| Origin::of_site(site, &mut endpoints).map(drop))
    }

    pub(crate) fn main(&self) -> &Arc<Origin> {
        &self.main
    }

    /// The site with this number, which must come from the rules that `self` was made with.
    pub(crate) fn get(&self, site: SiteId) -> &Arc<Origin> {
        site.among_ruled().map_or(&self.main, |place| &self.ruled[place])
    }

    /// Each endpoint of all sites once, with the first site that it serves.
    pub(crate) fn endpoints(&self) -> Vec<(&Arc<Origin>, &Arc<Endpoint>)> {
        let mut each: Vec<(&Arc<Origin>, &Arc<Endpoint>)> = Vec::new();
        for (site, endpoint) in self.all().flat_map(|s| s.endpoints.iter().map(move |e| (s, e))) {
            if !each.iter().any(|(_, known)| Arc::ptr_eq(known, endpoint)) {
                each.push((site, endpoint));
            }
        }
        each
    }

    /// State of all configured origins, sorted by URL, each URL once: one that is reached in two
    /// ways, as by two names of its certificate, is two endpoints. Empty for a forward proxy.
    pub(crate) fn origins(&self, now: Instant) -> Vec<OriginState> {
        let mut origins = BTreeMap::new();
        let endpoints = self.endpoints().into_iter().filter(|_| !self.is_forward);
        for (_, endpoint) in endpoints {
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
        [&self.main].into_iter().chain(&self.ruled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    fn parsed(text: &str) -> ProxyConfig {
        Settings::parse(text).unwrap().proxy
    }

    fn sites(text: &str) -> Sites {
        Sites::new(&parsed(text), "http://a.test", false).unwrap()
    }

    /// Whether the endpoint in this place of the list is the same in both.
    fn keeps(before: &Sites, after: &Sites, place: usize) -> bool {
        Arc::ptr_eq(before.endpoints()[place].1, after.endpoints()[place].1)
    }

    #[test]
    fn an_origin_is_one_however_many_sites_it_is_of() {
        let text = "to = \"http://a.test\"\n\
                    [[rule]]\nhost = \"x\"\nto = [\"http://b.test\", \"http://a.test\"]\n\
                    [[rule]]\nhost = \"y\"\nto = [\"http://b.test\", \"http://b.test\"]\n";
        let sites = sites(text);
        assert_eq!(sites.endpoints().len(), 2);
        let counts: Vec<usize> = sites.all().map(|site| site.endpoints.len()).collect();
        assert_eq!(counts, [1, 2, 1]);
        assert!(Arc::ptr_eq(&sites.main.endpoints[0], &sites.ruled[0].endpoints[1]));
        assert!(Arc::ptr_eq(&sites.ruled[0].endpoints[0], &sites.ruled[1].endpoints[0]));
    }

    #[test]
    fn a_reload_keeps_the_endpoints_that_it_does_not_change() {
        let before = sites("to = \"http://a.test\"\n");
        let with = |text: &str| before.with(&parsed(text)).unwrap();
        let main = "to = \"http://a.test\"\n";
        let moved = "to = \"http://b.test\"\n[upstream]\nmore_origins = [\"http://a.test\"]\n";
        assert!(Arc::ptr_eq(before.endpoints()[0].1, with(moved).endpoints()[1].1), "it is second");
        assert_eq!(with(moved).main.authority, "b.test");
        // Of https origins alone, or of none.
        for same in ["http2 = false", "tls_name = \"c.test\"", "http2_streams_max = 7"] {
            assert!(keeps(&before, &with(&format!("{main}[upstream]\n{same}\n")), 0), "{same}");
        }
        for other in ["requests_per_origin_max = 7", "http2_clear_text = true"] {
            assert!(!keeps(&before, &with(&format!("{main}[upstream]\n{other}\n")), 0), "{other}");
        }
    }

    #[test]
    fn what_trusts_another_certificate_is_another_endpoint() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("ca.pem");
        let write = || {
            let made = rcgen::generate_simple_self_signed(vec!["ca.test".to_owned()]).unwrap();
            std::fs::write(&file, made.cert.pem()).unwrap();
        };
        write();
        let text = |more: &str| {
            let file = file.display();
            format!("to = \"https://a.test\"\n[upstream]\nauthorities = \"{file}\"\n{more}")
        };
        let before = Sites::new(&parsed(&text("")), "https://a.test", false).unwrap();
        let with = |more: &str| before.with(&parsed(&text(more))).unwrap();
        assert!(keeps(&before, &with(""), 0), "the file says the same");
        assert!(!keeps(&before, &with("tls_name = \"b.test\"\n"), 0));
        assert!(!keeps(&before, &with("http2 = false\n"), 0));
        write();
        assert!(!keeps(&before, &with(""), 0), "the file says something else");
        std::fs::write(&file, "nothing").unwrap();
        assert!(before.with(&parsed(&text(""))).is_err());
    }
}
