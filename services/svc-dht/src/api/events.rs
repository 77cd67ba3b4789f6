//! `GET /v1/dht/events`: what happens in the node, as server-sent events, until the reader goes or the node stops.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    time::Duration,
};

use axum::{
    body::Body,
    http::{HeaderValue, header},
    response::Response,
};
use bytes::Bytes;
use futures_util::stream;
use ron_core::problem::Problem;

use super::{Api, Call};
use crate::events::Listener;

/// A comment is sent so often, so that a broken connection is noticed.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub fn stream(call: Call) -> Ready<Result<Response, Problem>> {
    let api = call.api;
    let listener = api.0.dht.node().events.listen();
    let events = stream::unfold((api, listener), |(api, mut listener)| async move {
        let told = next(&api, &mut listener).await?;
        Some((Ok::<_, Infallible>(told), (api, listener)))
    });
    let mut response = Response::new(Body::from_stream(events));
    let headers = response.headers_mut();
    let kind = HeaderValue::from_static("text/event-stream");
    headers.insert(header::CONTENT_TYPE, kind);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    ready(Ok(response))
}

/// One piece of the stream; `None` at its end.
async fn next(api: &Api, listener: &mut Listener) -> Option<Bytes> {
    let node = api.0.dht.node();
    let quiet = node.env.sleep(KEEP_ALIVE);
    let heard = tokio::select! {
        biased;
        heard = listener.next(&node.events) => heard?,
        () = api.0.stop.wait() => return None,
        () = quiet => return Some(Bytes::from_static(b": still here\n\n")),
    };
    let text = match heard {
        Ok(event) => {
            let data = serde_json::to_string(&event).unwrap_or_default();
            format!("event: {}\ndata: {data}\n\n", event.name())
        }
        Err(lagging) => format!(
            "event: {}\ndata: {{\"detail\":\"{lagging}\"}}\n\n",
            lagging.code()
        ),
    };
    Some(Bytes::from(text))
}
