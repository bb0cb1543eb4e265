//! What would keep a proxy from starting, found before anything is made or opened.

use crate::config::transport::{ListenAddress, Listener};
use crate::config::{ProxyConfig, Target, name};
use crate::error::ProxyError;
use crate::listen::{self, Gate};
use crate::upstream::Origin;

impl ProxyConfig {
    /// Finds whether another program has one of the addresses, without keeping them: call it before
    /// a store is made. [`crate::run`] looks again.
    ///
    /// # Errors
    /// An address cannot be listened on, or a socket was handed down that no listener has.
    pub fn check_address(&self) -> Result<(), ProxyError> {
        let listeners = self.all_listeners();
        let assigned = listen::assign(&listeners, &self.inherited)?;
        let own = listeners.iter().zip(&assigned).filter(|(_, socket)| socket.is_none());
        let addresses = own.filter_map(|(listener, _)| match listener.address {
            ListenAddress::Tcp(address) => Some(address),
            ListenAddress::Unix(_) => None,
        });
        addresses.chain(self.admin).try_for_each(listen::probe)
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
    /// The origin, the cache's name or a certificate cannot be used.
    pub fn check(&self) -> Result<(), ProxyError> {
        name::check_name(&self.name)?;
        Gate::new(&self.transport, self.connections_max)?;
        let upstream = &self.transport.upstream;
        if let Target::Url(url) = &self.to {
            Origin::new(url, upstream)?;
        }
        let mut of_rules = self.ruleset.sites().iter();
        of_rules.try_for_each(|urls| Origin::of_urls(urls, upstream).map(drop))
    }
}
