//! The contract of the seam: one body of tests, run on Tokio and in simulation.
//!
//! A case uses nothing but [`Env`], so that what it proves holds for service code in both worlds. It
//! never says "at most this long" (a real machine may be slow), only "not before" and "in this order";
//! a world that hangs is caught by the runner.

mod disk;
mod entropy;
mod net;
mod offload;
mod outbound;
mod serve;
mod serve_close;
mod serve_door;
mod serve_http2;
mod serve_limits;
mod support;
mod tasks;
mod time;

use std::net::IpAddr;

use ron_core::{Env, seam::BoxFuture};

/// Two processes and the way from one to the other. They may be one and the same.
pub struct Pair {
    pub server: Env,
    pub client: Env,
    /// The server's address, as the client sees it.
    pub server_ip: IpAddr,
    /// Resolves to the server's address among others, none of which anybody listens at.
    pub server_name: &'static str,
}

#[derive(Clone, Copy)]
pub struct Case {
    pub name: &'static str,
    pub run: fn(Pair) -> BoxFuture<'static, ()>,
}

/// Every case; each wants a fresh pair with an empty disk.
pub fn cases() -> Vec<Case> {
    [
        time::CASES,
        entropy::CASES,
        tasks::CASES,
        offload::CASES,
        net::CASES,
        disk::CASES,
        serve::CASES,
        serve_limits::CASES,
        serve_close::CASES,
        serve_door::CASES,
        serve_http2::CASES,
        outbound::CASES,
    ]
    .concat()
}

/// Lists the cases of a module under its name.
macro_rules! list {
    ($module:literal: $($case:ident),+ $(,)?) => {
        pub(crate) const CASES: &[crate::Case] = &[$(crate::Case {
            name: concat!($module, "::", stringify!($case)),
            run: |pair| Box::pin($case(pair)),
        }),+];
    };
}
pub(crate) use list;
