//! What would keep a proxy from starting, found before anything is made or opened.

use crate::config::{ProxyConfig, Target, name};
use crate::error::ProxyError;
use crate::listen;
use crate::upstream::Origin;

impl ProxyConfig {
    /// Finds whether another program has the address, without keeping it: call it before a store
    /// is made. [`crate::run`] looks again.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub fn check_address(&self) -> Result<(), ProxyError> {
        if self.inherited.is_empty() { listen::probe(self.from) } else { Ok(()) }
    }

    /// Finds what would keep [`crate::run`] from starting without touching anything: call it
    /// before a store is made.
    ///
    /// # Errors
    /// The origin or the cache's name cannot be used.
    pub fn check(&self) -> Result<(), ProxyError> {
        name::check_name(&self.name)?;
        match &self.to {
            Target::Demo => Ok(()),
            Target::Url(url) => Origin::new(url, &self.transport.upstream).map(drop),
        }
    }
}
