//! Which planted bug the run of this thread has. Only the copy of the tree that `cargo mutants-gate` builds contains this
//! file, as a module of ron-core.

use std::cell::Cell;

thread_local! {
    static BUG: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// From now on the code that this thread runs has this bug and no other.
pub fn plant(bug: Option<&str>) {
    BUG.set(bug.map(|name| &*name.to_owned().leak()));
}

pub fn is(name: &str) -> bool {
    // A thread that ends may come by while its locals are already gone.
    BUG.try_with(Cell::get).ok().flatten() == Some(name)
}
