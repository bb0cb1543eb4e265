//! What would keep a proxy from starting, found before anything is made or opened.

use crate::config::transport::{ListenAddress, Listener};
use crate::config::{ProxyConfig, Target, name};
use crate::error::ProxyError;
use crate::listen;
use crate::upstream::Origin;

impl ProxyConfig {
    /// Finds whether another program has the address, without keeping it: call it before a store
    /// is made. [`crate::run`] looks again.
    ///
    /// # Errors
    /// The address cannot be listened on, or a socket was handed down that no listener has.
    pub fn check_address(&self) -> Result<(), ProxyError> {
        let assigned = listen::assign(&self.all_listeners(), &self.inherited)?;
        if assigned[0].is_some() { Ok(()) } else { listen::probe(self.from) }
    }

    /// `from` and those beside it.
    pub(crate) fn all_listeners(&self) -> Vec<Listener> {
        let address = ListenAddress::Tcp(self.from);
        let mut listeners = vec![Listener { address, tls: false, proxy_protocol: false }];
        listeners.extend_from_slice(&self.transport.listeners);
        listeners
    }

    /// Finds what would keep [`crate::run`] from starting without touching anything: call it
    /// before a store is made.
    ///
    /// # Errors
    /// The origin or the cache's name cannot be used.
    pub fn check(&self) -> Result<(), ProxyError> {
        name::check_name(&self.name)?;
        let upstream = &self.transport.upstream;
        if let Target::Url(url) = &self.to {
            Origin::new(url, upstream)?;
        }
        let mut of_rules = self.ruleset.sites().iter();
        of_rules.try_for_each(|urls| Origin::of_urls(urls, upstream).map(drop))
    }
}
