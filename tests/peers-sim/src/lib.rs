//! One HTTP ping-pong, twice: on turmoil and on our simulator, with the same hyper on top of both.
//!
//! Each client sends its requests one after the other over one connection that is kept open; the server
//! answers at once. Each message takes a latency drawn from one distribution on both sides: turmoil's, which
//! is exponential from the least on and cut at the most.

pub mod bare;
pub mod ours;
pub mod theirs;

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, body::Incoming, client::conn::http1::SendRequest};

pub const PORT: u16 = 7000;

#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub clients: usize,
    /// Of each client.
    pub requests: usize,
    pub latency: Latency,
}

/// One way, for every message.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    pub least: Duration,
    pub most: Duration,
}

/// The rate of turmoil's curve, per `most - least`: its default.
pub const CURVE: f64 = 5.0;

impl Load {
    pub fn total(&self) -> usize {
        self.clients * self.requests
    }
}

/// The server's whole work.
pub async fn pong(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::new(Bytes::from_static(b"pong"))))
}

/// One request and its whole answer.
pub async fn ping(sender: &mut SendRequest<Full<Bytes>>) {
    let request = Request::get("/ping")
        .header("host", "server")
        .body(Full::new(Bytes::new()))
        .expect("a valid request");
    let answer = sender.send_request(request).await.expect("an answer");
    assert_eq!(answer.status(), 200);
    let body = answer.into_body().collect().await.expect("its body");
    assert_eq!(&body.to_bytes()[..], b"pong");
}
