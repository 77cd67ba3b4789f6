//! The project's own checks, as functions over text: the spec index, tidiness, generated docs, CI.
//!
//! Everything that judges takes a [`tree::Tree`] or a string and returns what it found, so that each
//! check is tested on a few lines in memory; only `tree`, `deps`, `third_party`, `ci`, `suites`, `docs::write`,
//! `new_service::write` and `mutants::gate` touch the machine.

// A developer's tool, never part of a service: it reads the checkout and starts cargo.
#![allow(clippy::disallowed_methods)]

pub mod ci;
pub mod citations;
pub mod deps;
pub mod docs;
pub mod mutants;
pub mod new_service;
pub mod rust_text;
pub mod spec;
pub mod suites;
pub mod third_party;
pub mod tidy;
pub mod tree;
