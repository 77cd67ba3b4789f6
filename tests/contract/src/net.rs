//! Net: ordered bytes, back-pressure, each direction closed on its own, honest errors.

use std::{io, time::Duration};

use ron_core::seam::Conn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{Pair, list, support::connected};

list!("net":
    bytes_arrive_complete_and_in_order_both_ways,
    a_closed_direction_leaves_the_other_open,
    a_writer_pends_on_a_peer_that_does_not_read_and_resumes,
    a_connection_is_made_before_it_is_accepted,
    connecting_to_a_closed_port_is_refused,
    a_port_in_use_is_refused_and_free_again_when_dropped,
    port_zero_gives_distinct_free_ports,
    a_dropped_connection_is_seen_by_its_peer,
    a_dropped_connection_with_unread_bytes_is_seen_by_its_peer,
    literal_addresses_resolve_to_themselves,
);

/// Differs at every position in reach, so that a lost, doubled or swapped piece shows.
fn pattern(from: usize, len: usize) -> Vec<u8> {
    (from..from + len)
        .map(|i| (i.wrapping_mul(0x9E37_79B1) >> 13) as u8)
        .collect()
}

async fn bytes_arrive_complete_and_in_order_both_ways(pair: Pair) {
    const TOTAL: usize = 2 << 20;
    async fn send(conn: &mut (impl AsyncWriteExt + Unpin)) {
        let (mut at, mut step) = (0, 1);
        while at < TOTAL {
            let len = step.min(TOTAL - at);
            conn.write_all(&pattern(at, len)).await.unwrap();
            at += len;
            step = step * 3 % 65_521 + 1;
        }
        conn.shutdown().await.unwrap();
    }
    async fn receive(conn: &mut (impl AsyncReadExt + Unpin)) {
        let mut all = Vec::new();
        conn.read_to_end(&mut all).await.unwrap();
        assert!(all == pattern(0, TOTAL), "{} bytes", all.len());
    }
    let (client, server) = connected(&pair).await;
    let (mut client_in, mut client_out) = tokio::io::split(client);
    let (mut server_in, mut server_out) = tokio::io::split(server);
    tokio::join!(
        biased;
        send(&mut client_out),
        receive(&mut server_in),
        send(&mut server_out),
        receive(&mut client_in),
    );
}

async fn a_closed_direction_leaves_the_other_open(pair: Pair) {
    let (mut client, mut server) = connected(&pair).await;
    client.write_all(b"ping").await.unwrap();
    client.shutdown().await.unwrap();
    let mut heard = Vec::new();
    server.read_to_end(&mut heard).await.unwrap();
    assert_eq!(heard, b"ping");
    assert_eq!(server.read(&mut [0; 1]).await.unwrap(), 0, "the end stays");

    server.write_all(b"pong").await.unwrap();
    server.shutdown().await.unwrap();
    let mut heard = Vec::new();
    client.read_to_end(&mut heard).await.unwrap();
    assert_eq!(heard, b"pong");
    assert!(client.write(b"more").await.is_err(), "closed for writing");
}

async fn a_writer_pends_on_a_peer_that_does_not_read_and_resumes(pair: Pair) {
    const NEVER: usize = 64 << 20;
    let (mut client, mut server) = connected(&pair).await;
    let env = &pair.client;
    let chunk = [7; 64 * 1024];
    let mut written = 0;
    while let Ok(n) = env
        .timeout(Duration::from_millis(200), client.write(&chunk))
        .await
    {
        written += n.unwrap();
        assert!(written < NEVER, "no back-pressure");
    }
    let receive = async {
        let mut all = Vec::new();
        server.read_to_end(&mut all).await.unwrap();
        all.len()
    };
    let send = async {
        client.write_all(b"end").await.unwrap();
        client.shutdown().await.unwrap();
    };
    let (received, ()) = tokio::join!(biased; receive, send);
    assert_eq!(received, written + 3);
}

async fn a_connection_is_made_before_it_is_accepted(pair: Pair) {
    let listener = pair
        .server
        .listen((pair.server_ip, 0).into())
        .await
        .unwrap();
    let addr = listener.local_addr().unwrap();
    let mut client = pair.client.connect(addr).await.unwrap();
    client.write_all(b"early").await.unwrap();
    let (mut server, peer) = listener.accept().await.unwrap();
    assert_ne!(peer.port(), 0);
    let mut heard = [0; 5];
    server.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"early");
}

async fn connecting_to_a_closed_port_is_refused(pair: Pair) {
    let listener = pair
        .server
        .listen((pair.server_ip, 0).into())
        .await
        .unwrap();
    let addr = listener.local_addr().unwrap();
    drop(listener);
    let error = pair.client.connect(addr).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
}

async fn a_port_in_use_is_refused_and_free_again_when_dropped(pair: Pair) {
    let first = pair
        .server
        .listen((pair.server_ip, 0).into())
        .await
        .unwrap();
    let addr = first.local_addr().unwrap();
    let error = pair.server.listen(addr).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    drop(first);
    pair.server.listen(addr).await.map(drop).unwrap();
}

async fn port_zero_gives_distinct_free_ports(pair: Pair) {
    let any = (pair.server_ip, 0).into();
    let a = pair.server.listen(any).await.unwrap();
    let b = pair.server.listen(any).await.unwrap();
    let (a, b) = (a.local_addr().unwrap(), b.local_addr().unwrap());
    assert!(a.port() != 0 && b.port() != 0 && a != b);
    assert_eq!(a.ip(), pair.server_ip);
}

async fn a_dropped_connection_is_seen_by_its_peer(pair: Pair) {
    let (client, server) = connected(&pair).await;
    drop(server);
    must_notice(&pair, client).await;
}

async fn a_dropped_connection_with_unread_bytes_is_seen_by_its_peer(pair: Pair) {
    let (mut client, mut server) = connected(&pair).await;
    client.write_all(&[0; 1000]).await.unwrap();
    server.read_exact(&mut [0; 1]).await.unwrap();
    drop(server);
    must_notice(&pair, client).await;
}

/// Reading ends (end of stream or reset), and writing fails sooner or later.
async fn must_notice(pair: &Pair, mut conn: Conn) {
    match conn.read(&mut [0; 16]).await {
        Ok(n) => assert_eq!(n, 0),
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
    }
    for _ in 0..100 {
        if conn.write(&[0; 16]).await.is_err() {
            return;
        }
        pair.client.sleep(Duration::from_millis(10)).await;
    }
    panic!("writing to a connection that is gone goes on and on");
}

async fn literal_addresses_resolve_to_themselves(pair: Pair) {
    let host = pair.server_ip.to_string();
    let found = pair.client.resolve(&host, 4711).await.unwrap();
    assert_eq!(found, [(pair.server_ip, 4711).into()]);
}
