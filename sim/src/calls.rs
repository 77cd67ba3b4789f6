//! What a client may ask of a service: a call of its registration ([`crate::services`]), and how it is carried out.
//!
//! Always: a call notes its request when it is sent and its outcome once.

use ron_core::seam::BoxFuture;

use crate::{ops::Op, services, workload::Clients};

pub struct CallKind {
    pub name: &'static str,
    pub does: &'static str,
    pub run: fn(Clients, Op) -> BoxFuture<'static, ()>,
}

pub const fn call(
    name: &'static str,
    does: &'static str,
    run: fn(Clients, Op) -> BoxFuture<'static, ()>,
) -> CallKind {
    CallKind { name, does, run }
}

pub fn find(name: &str) -> Option<&'static CallKind> {
    services::calls().find(|call| call.name == name)
}
