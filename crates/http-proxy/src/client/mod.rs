//! The client of a request as its connection describes it, and that connection's activity. `listen`
//! fills this in; request handling needs nothing else of a connection. No threads.

pub(crate) mod activity;
pub(crate) mod cut;
pub(crate) mod interim;
pub(crate) mod limits;
pub(crate) mod seats;

use std::net::IpAddr;
use std::sync::Arc;

use crate::client::activity::Activity;
use crate::client::interim::InterimSender;
use crate::forward::Route;
use crate::upstream::Pin;

/// The client of a connection.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    /// Its address: from the PROXY header if there was one; loopback for Unix sockets.
    pub(crate) ip: IpAddr,
    /// Whether it uses TLS.
    pub(crate) secure: bool,
    /// Activity of its connection.
    pub(crate) activity: Arc<Activity>,
    /// Accepts interim responses to its request, if it can receive any.
    pub(crate) interim: Option<InterimSender>,
    /// The destination of its request, if this is a forward proxy.
    pub(crate) route: Option<Arc<Route>>,
    /// Its dedicated connection to an origin; only where requests come one at a time.
    pub(crate) pin: Option<Arc<Pin>>,
}
