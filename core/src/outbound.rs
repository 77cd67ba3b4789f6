//! The way out: what a service needs to ask others over HTTP.

mod address;
mod body;
mod egress;

pub use address::{AddressPolicy, Forbidden, Scope};
pub use body::{BoundedBody, Exactly, ReadError, ReadLimits, WrongLength, read_whole};
pub use egress::{ClientPem, Egress, IdentityError, TlsIdentity, certificates, private_key};
