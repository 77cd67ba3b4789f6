//! What goes over a connection: frames, the handshake, and envelopes with requests and answers.

pub mod message;
