//! Configuration: command line over environment over TOML file over default, with unknown keys refused.
//!
//! A key is declared once, by [`settings!`](crate::settings): that declaration is the struct, its default, its
//! allowed range and its line in the docs. Nothing here reads a file or the environment: text in, result
//! out. Every error is one line that names where the value came from, the key, the value and what is allowed.

mod declare;
mod load;
mod reload;

pub use declare::{Apply, InRange, KeyDecl, Secret, Setting, Settings, key, section};
pub use load::{Broken, ConfigError, ConfigErrors, Loaded, Origin, Sources};
pub use reload::{ReloadReport, Reloadable};
