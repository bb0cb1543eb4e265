//! Checks, before anything is created or opened, whether a proxy could start.

use std::fs::File;

use super::check_path;
use crate::config::transport::{ListenAddress, Listener};
use crate::config::{LogTarget, ProxyConfig, name};
use crate::error::ProxyError;
use crate::error_page::ErrorPage;
use crate::listen::{self, Balance, Gate};
use crate::log;
use crate::upstream::Sites;

/// What [`ProxyConfig::check_address`] has to keep open. Drop it once the proxy runs.
#[derive(Debug)]
#[must_use = "dropped before the proxy runs, it ends an access log that is a FIFO"]
pub struct KeptOpen {
    /// A log that is a FIFO.
    _log: Option<File>,
}

impl ProxyConfig {
    /// Checks whether the addresses and Unix sockets are free, without keeping them, and whether
    /// the access log can be written, which is made if it does not exist. Call it before a store is
    /// created; [`crate::run`] checks again. Keep what it returns until then: who reads a FIFO
    /// takes it for ended once nobody has it open.
    ///
    /// # Errors
    /// An address cannot be listened on, an inherited socket matches no listener, or the log cannot
    /// be opened.
    pub fn check_address(&self) -> Result<KeptOpen, ProxyError> {
        let listeners = self.all_listeners();
        let assigned = listen::assign(&listeners, &self.inherited)?;
        let all = listeners.iter().zip(&assigned).enumerate();
        for (index, (listener, _)) in all.filter(|(_, (_, socket))| socket.is_none()) {
            match &listener.address {
                ListenAddress::Tcp(address) => listen::probe(*address, listen::key_of(index))?,
                ListenAddress::Unix(path) => listen::probe_unix(path)?,
            }
        }
        self.admin.from.map(|address| listen::probe(address, "admin.from")).transpose()?;
        let LogTarget::File(path) = &self.log.to else { return Ok(KeptOpen { _log: None }) };
        let checked = log::check(path);
        let _log = checked
            .map_err(|source| ProxyError::Log { target: self.log.to.to_string(), source })?;
        Ok(KeptOpen { _log })
    }

    /// `from` and the further listeners.
    pub(crate) fn all_listeners(&self) -> Vec<Listener> {
        let address = ListenAddress::Tcp(self.from);
        let mut listeners = vec![Listener { address, tls: false, proxy_protocol: false }];
        listeners.extend_from_slice(&self.listen);
        listeners
    }

    /// Checks, without side effects, whether [`crate::run`] could start; call it before a store is
    /// created.
    ///
    /// # Errors
    /// The origin, the cache's name, a certificate or a limit cannot be used.
    pub fn check(&self) -> Result<(), ProxyError> {
        name::check_name(&self.name)?;
        self.limits.check()?;
        Gate::new(self, Balance::new(1).0)?;
        check_path(self)?;
        ErrorPage::load(self.errors.page.as_deref())?;
        Sites::check(self)
    }
}
