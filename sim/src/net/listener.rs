//! The listening end of the simulated network: connections that wait to be accepted.

use std::{
    collections::VecDeque,
    future::poll_fn,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
    task::{Poll, Waker},
};

use ron_core::seam::{BoxFuture, Conn, Listener};

use super::{Incarnation, Network, NodeId, SimStream};

#[derive(Default)]
pub(super) struct Backlog {
    pub waiting: VecDeque<(SimStream, SocketAddr)>,
    pub acceptor: Option<Waker>,
}

pub(super) struct SimListener {
    net: Network,
    addr: SocketAddr,
    node: NodeId,
    incarnation: Incarnation,
    backlog: Arc<Mutex<Backlog>>,
}

impl SimListener {
    pub fn new(
        net: Network,
        addr: SocketAddr,
        (node, incarnation): (NodeId, Incarnation),
        backlog: Arc<Mutex<Backlog>>,
    ) -> Self {
        SimListener {
            net,
            addr,
            node,
            incarnation,
            backlog,
        }
    }
}

impl Listener for SimListener {
    fn accept(&self) -> BoxFuture<'_, io::Result<(Conn, SocketAddr)>> {
        Box::pin(poll_fn(|cx| {
            if let Err(gone) = self.net.lock().check_alive(self.node, self.incarnation) {
                return Poll::Ready(Err(gone));
            }
            let mut backlog = self.backlog.lock().unwrap();
            match backlog.waiting.pop_front() {
                Some((stream, peer)) => Poll::Ready(Ok((Box::new(stream) as Conn, peer))),
                None => {
                    backlog.acceptor = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        }))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.addr)
    }
}

impl Drop for SimListener {
    fn drop(&mut self) {
        let waiting = {
            let mut backlog = self.backlog.lock().unwrap();
            std::mem::take(&mut backlog.waiting)
        };
        let mut state = self.net.lock();
        if state
            .listeners
            .get(&self.addr)
            .is_some_and(|b| Arc::ptr_eq(b, &self.backlog))
        {
            state.listeners.remove(&self.addr);
        }
        drop(state);
        // Dropped last and outside the lock: closing a stream takes it.
        drop(waiting);
    }
}
