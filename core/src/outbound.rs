//! The way out: what a service needs to ask others over HTTP.
//!
//! Start at [`Client`]. [`Egress`] says whom it may ask and as whom; [`read_whole`] and [`BoundedBody`] bound what
//! comes back. What decides is pure and has a file of its own.

mod address;
mod body;
pub mod breaker;
mod client;
mod destinations;
mod egress;
mod retry;

pub use address::{AddressPolicy, Forbidden, Scope};
pub use body::{BoundedBody, Exactly, ReadError, ReadLimits, WrongLength, read_whole};
pub use breaker::{BreakerRules, ErrorRate};
pub use client::{CallError, Client, ClientRules};
pub use destinations::{OutboundLimits, Refusal};
pub use egress::{ClientPem, Egress, IdentityError, TlsIdentity, certificates, private_key};
pub use retry::{IDEMPOTENCY_KEY, RetryRules, is_idempotent};
