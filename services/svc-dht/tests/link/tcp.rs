//! The same over real sockets: two nodes on loopback.

use std::{sync::Arc, time::Duration};

use ron_core::Env;
use ron_io::{Data, TokioOptions, TokioRuntime};
use svc_dht::{
    contact::Contact,
    link::error::RpcError,
    wire::message::{Request, Response},
};

use crate::node::{Node, identity};

fn on_tokio<F: Future<Output = ()>>(body: impl FnOnce(Env) -> F) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let options = TokioOptions {
        data: Data::Memory {
            limit_bytes: 1 << 20,
        },
        extra_ca_pem: None,
    };
    let env = Env::new(TokioRuntime::new(runtime.handle().clone(), &options).unwrap());
    runtime.block_on(body(env));
}

async fn node(env: &Env, n: u8) -> (Node, Contact) {
    let listener = env.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let addr = listener.local_addr().unwrap().into();
    let id = identity(n).id();
    (Node::on(env, n, listener, |_| {}), Contact { id, addr })
}

#[test]
fn nodes_on_loopback_ask_each_other_over_one_connection_and_part() {
    on_tokio(|env| async move {
        let ((a, _), (b, at_b)) = (node(&env, 1).await, node(&env, 2).await);
        for _ in 0..100 {
            let asked: Vec<_> = (0..8)
                .map(|_| {
                    let (peers, deadline) = (a.peers.clone(), a.in_ms(10_000));
                    env.spawn("ask", async move {
                        peers.request(at_b, &Request::Ping, false, deadline).await
                    })
                })
                .collect();
            for asked in asked {
                assert_eq!(asked.await.unwrap(), Ok(Response::Pong));
            }
        }
        assert_eq!(a.peers.stats().dialled.get(), 1);
        assert_eq!(b.peers.stats().requests_in.get(), 800);
        assert_eq!(b.heard.proven.lock().unwrap().len(), 1);
        let (a_stats, b_stats) = (a.peers.stats(), b.peers.stats());
        assert_eq!(a_stats.bytes_in.get(), b_stats.bytes_out.get());
        a.finish().await;
        b.finish().await;
    });
}

#[test]
fn a_node_that_is_gone_refuses_and_one_that_comes_back_is_found_again() {
    on_tokio(|env| async move {
        let ((a, _), (b, at_b)) = (node(&env, 1).await, node(&env, 2).await);
        let a = Arc::new(a);
        assert_eq!(a.ask(at_b, Request::Ping, 10_000).await, Ok(Response::Pong));
        b.finish().await;
        // Its listener may need a moment to close.
        let refused = loop {
            match a.ask(at_b, Request::Ping, 10_000).await {
                Err(RpcError::Connect) => break RpcError::Connect,
                Err(_) => env.sleep(Duration::from_millis(1)).await,
                Ok(response) => panic!("{response:?}"),
            }
        };
        assert_eq!(refused, RpcError::Connect);
        let listener = env.listen(at_b.addr.socket()).await.unwrap();
        let b = Node::on(&env, 2, listener, |_| {});
        assert_eq!(a.ask(at_b, Request::Ping, 10_000).await, Ok(Response::Pong));
        Arc::into_inner(a).unwrap().finish().await;
        b.finish().await;
    });
}
