//! The same server over HTTP/2: several requests at once on one connection, and its end once nothing is asked any more.

use std::{future::Future, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::{client::conn::http2, rt::Executor};
use hyper_util::rt::TokioIo;
use ron_core::Env;

use super::{Verdict, agree, connection::House, demand, serve::BESIDES};

#[derive(Clone)]
struct Tasks(Env);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, task: F) {
        drop(self.0.spawn("drill", task));
    }
}

pub async fn streams(house: &mut House<'_>) -> Verdict {
    let (env, idle) = (house.bench.env.clone(), house.server.options.idle);
    let conn = TokioIo::new(house.open().await?.into_conn());
    let shaken = http2::handshake(Tasks(env.clone()), conn).await;
    let (mut sender, connection) = shaken.map_err(|e| format!("http2: {e}"))?;
    let ended = env.clone();
    let connection = env.spawn("drill", async move {
        // How it ends does not matter, but when.
        let _ = connection.await;
        ended.now()
    });
    let mut asked = env.now();
    for n in 0..3u32 {
        if n > 0 {
            env.sleep(idle * 6 / 10).await;
        }
        asked = env.now();
        let mut open = Vec::new();
        for _ in 0..house.bench.pick(1, 3) {
            let path = house.bench.one_of(&["/", "/slow/3000"]);
            sender.ready().await.map_err(|e| format!("http2: {e}"))?;
            let request = http::Request::get(format!("http://localhost{path}"));
            let request = request
                .body(Empty::<Bytes>::new())
                .expect("a sound request");
            open.push((path, sender.send_request(request)));
        }
        for (path, answer) in open {
            let answer = answer.await.map_err(|e| format!("http2 {path}: {e}"))?;
            agree("http2: status", answer.status().as_u16(), 200)?;
            let body = answer.into_body().collect().await;
            let body = body.map_err(|e| format!("http2 {path}: {e}"))?.to_bytes();
            let expected: &[u8] = if path == "/" { b"ok" } else { b"done" };
            agree("http2: body", &body[..], expected)?;
        }
    }
    let at = connection.await.map_err(|_| "http2: lost")?;
    house.expected.idle = 1;
    let (took, most) = (at - asked, idle + BESIDES + Duration::from_millis(10));
    demand((idle..=most).contains(&took), || {
        format!("http2 idle: expected {idle:?} to {most:?}, came {took:?}")
    })
}
