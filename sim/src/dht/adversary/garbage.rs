//! Bytes that are no protocol: on fresh connections, before, in and instead of the handshake.

use std::{net::SocketAddr, time::Duration};

use bytes::BytesMut;
use futures_util::future::join_all;
use ron_core::{Env, seam::Conn};
use svc_dht::{
    identity::{Identity, NetworkId},
    wire::{frame::put_bytes_as_frame, handshake::Dialler},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Ways to be no peer.
const WAYS: u8 = 7;
const WITHIN: Duration = Duration::from_millis(500);

/// One connection to each, each with another kind of rubbish.
pub async fn throw(env: &Env, victims: &[SocketAddr]) {
    let thrown = victims.iter().map(|addr| async move {
        let until = env.now() + WITHIN;
        let mut drawn = [0; 33];
        env.fill_random(&mut drawn);
        let Ok(Ok(mut conn)) = env.timeout_at(until, env.connect(*addr)).await else {
            return;
        };
        let rubbish = rubbish(drawn[0] % WAYS, &drawn[1..]);
        let sent = env.timeout_at(until, conn.write_all(&rubbish)).await;
        env.probe(
            "adversary.garbage",
            u64::from(drawn[0] % WAYS),
            format_args!(""),
        );
        if matches!(sent, Ok(Ok(()))) {
            let _ = env.timeout_at(until, drain(&mut conn)).await;
        }
        let _ = env.timeout_at(until, conn.shutdown()).await;
    });
    join_all(thrown).await;
}

async fn drain(conn: &mut Conn) {
    let mut buffer = [0; 256];
    while let Ok(1..) = conn.read(&mut buffer).await {}
}

fn rubbish(way: u8, random: &[u8]) -> Vec<u8> {
    let mut seed = [0; 32];
    seed.copy_from_slice(random);
    let framed = |content: &[u8]| {
        let mut out = BytesMut::new();
        let _ = put_bytes_as_frame(&mut out, content);
        out.to_vec()
    };
    let hello = |network: &str| {
        let identity = Identity::from_seed(&seed);
        let nonce = Default::default();
        let (_, hello) = Dialler::new(&identity, NetworkId::of_name(network), 7490, nonce);
        framed(&hello)
    };
    match way {
        // A length of nothing, and one beyond what anybody may send.
        0 => vec![0; 4],
        1 => ((1_u32 << 20) + 1).to_be_bytes().to_vec(),
        // A frame that stops half way.
        2 => framed(&[0xa5; 200])[..100].to_vec(),
        // Random bytes, framed and not.
        3 => framed(random),
        4 => random.to_vec(),
        // A good greeting of another network, and one of this network that goes on with rubbish.
        5 => hello("another"),
        _ => [hello("ron"), framed(random)].concat(),
    }
}
