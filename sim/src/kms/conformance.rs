//! How runs of ron-kms read as steps of its models.

pub mod audit;
pub mod keys;

use crate::conformance::Followed;

pub const FOLLOWED: &[Followed] = &[
    Followed::by::<audit::Follow>(),
    Followed::by::<keys::Follow>(),
];
