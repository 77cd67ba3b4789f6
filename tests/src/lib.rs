//! What is tested, measured or told about the project as a whole: benches beside peers, and the tables of
//! `docs/_generated`, checkers of audit logs that share no code with them, real binaries as processes.

pub mod daemon;
pub mod third_party;

use xtask::docs::Generator;

/// Every page of `docs/_generated`, from the crate it tells about.
pub const GENERATORS: &[Generator] = &[
    sim::pool::topology::page,
    ron_kms::topology::page,
    svc_dht::topology::page,
];
