//! Keys: what they may do, and the operations on their bytes.
//!
//! Everything here is pure: time and randomness are arguments, and nothing is stored. Who keeps the bytes
//! is a backend's business; whether a version may be used is decided here and nowhere else.
//!
//! [`key`] decides, [`signing`] and [`sealing`] act, [`nonce`] numbers what is sealed, [`xwing`] seals
//! to a public key.

pub mod algorithm;
pub mod key;
pub mod kid;
pub mod nonce;
pub mod public;
pub mod sealing;
pub mod secret;
pub mod signing;
pub mod xwing;

pub use algorithm::{Algorithm, Use};
pub use key::Key;
pub use kid::{Kid, VersionedKid};
pub use secret::Secret;

/// Where random bytes come from: the caller's generator, so that a simulation can repeat them.
pub type Fill<'a> = &'a mut dyn FnMut(&mut [u8]);
