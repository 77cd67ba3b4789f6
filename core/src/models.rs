//! Models for the checker: bounded worlds in which every order of events is tried.
//!
//! A model steps the pure code that production runs, never a copy of it, and each can be given a known
//! flaw that the checker must find: a checker that cannot fail proves nothing.

pub mod queue;
