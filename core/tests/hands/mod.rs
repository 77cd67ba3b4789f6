//! Polling by hand, in a world whose clock is moved by hand.
#![allow(dead_code, reason = "each test file uses its part of it")]

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Wake},
};

use ron_core::Env;

#[path = "../world/mod.rs"]
mod clockwork;

pub use clockwork::World as Hands;

/// An `Env` and the hands of its clock.
pub fn world() -> (Env, Hands) {
    let world = Hands::new();
    (world.env(), world)
}

/// A future and how often it was woken.
pub struct Polled<F> {
    future: Pin<Box<F>>,
    wakes: Arc<Wakes>,
}

#[derive(Default)]
struct Wakes(Mutex<usize>);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        *self.0.lock().unwrap() += 1;
    }
}

impl<F: Future> Polled<F> {
    pub fn new(future: F) -> Self {
        Polled {
            future: Box::pin(future),
            wakes: Arc::default(),
        }
    }

    pub fn poll(&mut self) -> Poll<F::Output> {
        let waker = self.wakes.clone().into();
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    pub fn wakes(&self) -> usize {
        *self.wakes.0.lock().unwrap()
    }
}
