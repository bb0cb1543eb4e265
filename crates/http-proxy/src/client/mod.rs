//! The client of a request as its connection describes it, and that connection's activity. `listen`
//! fills this in; request handling needs nothing else of a connection. No threads.

pub(crate) mod activity;
pub(crate) mod cut;
pub(crate) mod interim;
pub(crate) mod limits;
pub(crate) mod place;
pub(crate) mod seats;

use std::net::IpAddr;
use std::sync::Arc;

use crate::client::activity::Activity;
use crate::client::interim::InterimSender;
use crate::forward::Route;
use crate::log::Notes;
use crate::upstream::Pin;

/// The version of TLS of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TlsVersion {
    V1_2,
    V1_3,
}

impl TlsVersion {
    /// As other servers name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            TlsVersion::V1_2 => "TLSv1.2",
            TlsVersion::V1_3 => "TLSv1.3",
        }
    }
}

/// The client of a connection.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    /// Its address: from the PROXY header if there was one; loopback for Unix sockets.
    pub(crate) ip: IpAddr,
    /// Whether it uses TLS.
    pub(crate) secure: bool,
    /// The version of TLS, if this proxy speaks it with the client.
    pub(crate) tls_version: Option<TlsVersion>,
    /// Activity of its connection.
    pub(crate) activity: Arc<Activity>,
    /// Accepts interim responses to its request, if it can receive any.
    pub(crate) interim: Option<InterimSender>,
    /// The destination of its request, if this is a forward proxy.
    pub(crate) route: Option<Arc<Route>>,
    /// Its dedicated connection to an origin; only where requests come one at a time.
    pub(crate) pin: Option<Arc<Pin>>,
    /// Notes on its request, if that has a line in the log.
    pub(crate) notes: Option<Arc<Notes>>,
}
