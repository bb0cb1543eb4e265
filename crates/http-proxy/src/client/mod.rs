//! Who sent a request, as far as the connection tells, and what that connection is doing. What listens
//! fills this in; what handles requests needs no more of a connection. No threads.

pub(crate) mod activity;
pub(crate) mod interim;
pub(crate) mod limits;

use std::net::IpAddr;
use std::sync::Arc;

use crate::client::activity::Activity;
use crate::client::interim::InterimSender;
use crate::forward::Route;
use crate::upstream::Pin;

/// The client of a connection.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    /// Its address: the one a PROXY header gave, if there was one; loopback for Unix sockets.
    pub(crate) ip: IpAddr,
    /// Whether it speaks TLS to us.
    pub(crate) secure: bool,
    /// What its connection is doing.
    pub(crate) activity: Arc<Activity>,
    /// Where interim answers to its request go, if it can be sent any.
    pub(crate) interim: Option<InterimSender>,
    /// Where its request may go, if this is a forward proxy.
    pub(crate) route: Option<Arc<Route>>,
    /// Its own connection to an origin, if it can have one: where requests come one by one.
    pub(crate) pin: Option<Arc<Pin>>,
}
