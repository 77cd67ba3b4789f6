//! Accepts connections of other nodes, as many as may be; who comes beyond that, or while the node drains, is told so.

use std::{io, pin::pin, time::Duration};

use bytes::BytesMut;
use futures_util::FutureExt;
use ron_core::{
    Shutdown,
    seam::{Conn, Listener},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    peers::Peers,
    wire::{frame::put_bytes_as_frame, handshake::RejectCode},
};

/// After an accept error such as "too many open files", which would repeat at once.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

/// Accepts until `stop`. Connections live on: they end with [`Peers::shutdown`].
pub async fn listen(peers: &Peers, listener: &dyn Listener, stop: &Shutdown) {
    let hub = &peers.0;
    let mut stopped = pin!(stop.wait());
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut stopped => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, from)) => {
                if let Err(stream) = hub.admit(stream, from) {
                    refuse(stream, hub.is_draining());
                    hub.stats.shut_down.up();
                }
            }
            Err(error) if concerns_one_connection(&error) => {}
            Err(_) => {
                hub.stats.accept_errors.up();
                tokio::select! {
                    biased;
                    () = &mut stopped => return,
                    () = hub.env.sleep(ACCEPT_BACKOFF) => {}
                }
            }
        }
    }
}

/// Says why, as far as that needs no waiting, and shuts the stream down.
fn refuse(mut stream: Conn, draining: bool) {
    let code = match draining {
        true => RejectCode::NotReady,
        false => RejectCode::Busy,
    };
    let mut reject = BytesMut::new();
    let _ = put_bytes_as_frame(&mut reject, &code.frame());
    // Bytes left unread would turn the close into a reset, and the reason might be lost.
    let _ = stream.read(&mut [0; 1024]).now_or_never();
    let _ = stream.write_all(&reject).now_or_never();
    let _ = stream.shutdown().now_or_never();
}

/// The peer gave up between its connect and our accept: the next accept is not affected.
fn concerns_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}
