//! Placeholder of what the server tells about a connection, until the kernel's own lands.

use std::{net::SocketAddr, sync::Arc};

/// Who sent a request: found in its extensions.
#[derive(Clone, Debug)]
pub struct Peer {
    pub addr: SocketAddr,
    pub cert: Option<Arc<ClientCert>>,
}

#[derive(Debug)]
pub struct ClientCert;

/// The client stopped sending in the middle of a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request body did not arrive in time")]
pub struct BodyReadTimeout;
