//! Named points in the code that a simulated run watches or bends: marks and buggify points.
//!
//! Each crate declares its names in one table, `crate::POINTS`; a name that is not in it does not compile, so
//! the catalogue is complete when the program is linked. Always: without the feature `sim`
//! every point is gone from the program; with it a point is silent on a thread that watches nothing.
//!
//! | macro | says | without the feature |
//! | --- | --- | --- |
//! | `sometimes!("queue.full")` | some run must come by here | nothing |
//! | `buggify!("queue.pop_yields")` | true now and then, in some runs: do something rare but allowed | `false` |

#[cfg(feature = "sim")]
mod watched;

#[cfg(feature = "sim")]
pub use watched::{Site, Watcher, apart, buggify, sometimes, watch};

/// What a crate declares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Points {
    pub marks: &'static [&'static str],
    pub buggify: &'static [&'static str],
}

/// Evaluated by the compiler: does the table list the name?
pub const fn lists(table: &[&str], name: &str) -> bool {
    let mut n = 0;
    while n < table.len() {
        if same(table[n].as_bytes(), name.as_bytes()) {
            return true;
        }
        n += 1;
    }
    false
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut n = 0;
    while n < a.len() {
        if a[n] != b[n] {
            return false;
        }
        n += 1;
    }
    true
}

/// Says that some simulated run must come by here, or the runs prove less than they seem to.
#[cfg(feature = "sim")]
#[allow(
    clippy::crate_in_macro_def,
    reason = "the table is that of the caller's crate"
)]
#[macro_export]
macro_rules! sometimes {
    ($name:literal) => {{
        const {
            assert!(
                $crate::points::lists(crate::POINTS.marks, $name),
                "the mark is not in POINTS.marks of this crate"
            )
        };
        ::std::thread_local! {
            static SITE: $crate::points::Site = const { $crate::points::Site::new() };
        }
        $crate::points::sometimes(&SITE, $name)
    }};
}

/// Says that some simulated run must come by here; this build watches none.
#[cfg(not(feature = "sim"))]
#[allow(
    clippy::crate_in_macro_def,
    reason = "the table is that of the caller's crate"
)]
#[macro_export]
macro_rules! sometimes {
    ($name:literal) => {
        const {
            assert!(
                $crate::points::lists(crate::POINTS.marks, $name),
                "the mark is not in POINTS.marks of this crate"
            )
        }
    };
}

/// True now and then in runs that drew this point: the place to do what is rare but allowed.
#[cfg(feature = "sim")]
#[allow(
    clippy::crate_in_macro_def,
    reason = "the table is that of the caller's crate"
)]
#[macro_export]
macro_rules! buggify {
    ($name:literal) => {{
        const {
            assert!(
                $crate::points::lists(crate::POINTS.buggify, $name),
                "the point is not in POINTS.buggify of this crate"
            )
        };
        ::std::thread_local! {
            static SITE: $crate::points::Site = const { $crate::points::Site::new() };
        }
        $crate::points::buggify(&SITE, $name)
    }};
}

/// Never true: this build has no simulated run to bend.
#[cfg(not(feature = "sim"))]
#[allow(
    clippy::crate_in_macro_def,
    reason = "the table is that of the caller's crate"
)]
#[macro_export]
macro_rules! buggify {
    ($name:literal) => {
        const {
            assert!(
                $crate::points::lists(crate::POINTS.buggify, $name),
                "the point is not in POINTS.buggify of this crate"
            );
            false
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_very_name_is_listed() {
        let table = &["queue.full", "queue.closed"];
        for (name, listed) in [
            ("queue.full", true),
            ("queue.closed", true),
            ("queue.ful", false),
            ("queue.fulls", false),
            ("", false),
        ] {
            assert_eq!(lists(table, name), listed, "{name}");
        }
        assert!(!lists(&[], "x"));
    }

    #[test]
    fn no_name_is_declared_twice() {
        let all = [crate::POINTS.marks, crate::POINTS.buggify];
        let mut names: Vec<_> = all.concat();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn a_thread_that_watches_nothing_is_not_bent() {
        for _ in 0..1000 {
            assert!(!crate::buggify!("queue.pop_yields"));
        }
    }
}
