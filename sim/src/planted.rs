//! The switch of planted bugs, which is dead here: no bug is compiled in. In the copy of the tree that
//! `cargo mutants-gate` builds, another file stands in its place (`tests/xtask/src/mutants.rs`).

/// True if this build has the planted bugs.
pub const COMPILED: bool = false;

/// From now on the code that this thread runs has this bug and no other.
pub fn plant(_bug: Option<&str>) {}
