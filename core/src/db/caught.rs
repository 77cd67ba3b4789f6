//! A damaged file makes redb panic here and there. What it does is caught, and told in one line instead of a trace.

use std::{
    cell::RefCell,
    panic::{self, AssertUnwindSafe, PanicHookInfo},
    sync::Once,
};

thread_local! {
    /// There while this thread works on a database: what redb said when it panicked.
    static SAID: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// How work on a database ended that did not end well.
#[derive(Debug)]
pub(super) enum Panicked {
    /// redb, over what the file holds.
    Redb(String),
    /// Whoever called it; said on the error stream like any panic.
    Caller,
}

/// The answer of `work`, or how it panicked.
pub(super) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let others = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let told = SAID.with_borrow_mut(|said| {
                let said = said.as_mut().filter(|_| is_redb(info));
                said.map(|said| *said = one_line(info)).is_some()
            });
            if !told {
                others(info);
            }
        }));
    });
    let outer = SAID.replace(Some(String::new()));
    let answer = panic::catch_unwind(AssertUnwindSafe(work));
    let said = SAID.replace(outer).unwrap_or_default();
    answer.map_err(|_| match said.is_empty() {
        true => Panicked::Caller,
        false => Panicked::Redb(said),
    })
}

/// In its sources, or in those of the standard library, which it calls.
fn is_redb(info: &PanicHookInfo<'_>) -> bool {
    let file = info.location().map_or("", |at| at.file());
    file.contains("/redb-") || file.starts_with("/rustc/")
}

fn one_line(info: &PanicHookInfo<'_>) -> String {
    let said = info.payload_as_str().unwrap_or("no reason given");
    let place = info.location().map_or_else(String::new, |at| {
        let file = at.file().rsplit('/').next().unwrap_or_default();
        format!(" ({file}:{})", at.line())
    });
    let words: Vec<&str> = said.split_whitespace().collect();
    format!("{}{place}", words.join(" "))
}
