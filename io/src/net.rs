//! TCP. Always: Nagle's delay is off, since hyper already gathers what belongs together.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use ron_core::seam::{BoxFuture, Conn, Listener, Net};
use tokio::net::{TcpListener, TcpStream, lookup_host};

use crate::TokioRuntime;

impl Net for TokioRuntime {
    fn listen(&self, addr: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        Box::pin(listen(addr))
    }

    fn connect(&self, addr: SocketAddr) -> BoxFuture<'_, io::Result<Conn>> {
        Box::pin(async move {
            let stream = TcpStream::connect(addr).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Conn)
        })
    }

    fn resolve<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(resolve(host, port))
    }
}

pub(crate) async fn listen(addr: SocketAddr) -> io::Result<Box<dyn Listener>> {
    let listener = TcpListener::bind(addr).await?;
    Ok(Box::new(Tcp(listener)))
}

/// Sorted, because name servers rotate their answers and the seam promises a stable order.
pub(crate) async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(ip) = literal.parse::<IpAddr>() {
        return Ok(vec![(ip, port).into()]);
    }
    let mut found: Vec<SocketAddr> = lookup_host((host, port)).await?.collect();
    found.sort_unstable();
    found.dedup();
    if found.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("{host} has no address"),
        ));
    }
    Ok(found)
}

struct Tcp(TcpListener);

impl Listener for Tcp {
    fn accept(&self) -> BoxFuture<'_, io::Result<(Conn, SocketAddr)>> {
        Box::pin(async {
            let (stream, peer) = self.0.accept().await?;
            stream.set_nodelay(true)?;
            Ok((Box::new(stream) as Conn, peer))
        })
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

#[cfg(test)]
mod tests {
    use super::resolve;

    #[tokio::test]
    async fn literals_resolve_to_themselves_without_a_name_server() {
        for (host, expected) in [
            ("127.0.0.1", "127.0.0.1:80"),
            ("::1", "[::1]:80"),
            ("[::1]", "[::1]:80"),
        ] {
            let found = resolve(host, 80).await.unwrap();
            assert_eq!(found, [expected.parse().unwrap()], "{host}");
        }
    }

    #[tokio::test]
    async fn localhost_resolves_in_sorted_order_without_doubles() {
        let found = resolve("localhost", 7).await.unwrap();
        let mut sorted = found.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(found, sorted);
        assert!(found.iter().all(|a| a.ip().is_loopback() && a.port() == 7));
    }
}
