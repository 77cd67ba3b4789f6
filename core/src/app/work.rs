//! The loop of a worker: takes jobs off a queue and carries several at once, so that one that waits holds up no other.
//!
//! Always: what was taken is finished, and so is what is queued when the queue is closed.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
};

use futures_util::{StreamExt, stream::FuturesUnordered};

use crate::Queue;

type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs until the queue is closed and drained, with at most `in_hand` jobs at once.
pub async fn work<T, P, F>(queue: &Queue<T, P>, in_hand: usize, serve: impl Fn(T) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut running: FuturesUnordered<Running> = FuturesUnordered::new();
    let mut open = true;
    while open || !running.is_empty() {
        tokio::select! {
            biased;
            Some(()) = running.next(), if !running.is_empty() => {
                if running.is_empty() {
                    // What the set has grown to is given back: most workers are idle most of the time.
                    running = FuturesUnordered::new();
                }
            }
            job = queue.pop(), if open && running.len() < in_hand => match job {
                None => open = false,
                Some(job) => {
                    let mut job: Running = Box::pin(serve(job));
                    // Most jobs need no wait: these never become part of the set.
                    if !poll_fn(|cx| Poll::Ready(job.as_mut().poll(cx).is_ready())).await {
                        running.push(job);
                    }
                }
            },
        }
    }
}
