//! What goes over a connection: frames, the handshake, and envelopes with requests and answers.
//!
//! From the bottom up: [`frame`] tells messages apart, [`cbor`] is what they are written in, [`handshake`] is what the
//! first of them say, [`message`] is what is asked and answered after that, [`payload`] and [`envelope`] are its form.

pub mod cbor;
pub mod envelope;
pub mod frame;
pub mod handshake;
pub mod message;
pub mod payload;
