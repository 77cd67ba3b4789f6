//! What is tested, measured or told about the project as a whole: benches beside peers, and the tables of
//! `docs/_generated`, checkers of audit logs that share no code with them, real binaries as processes.

pub mod daemon;
pub mod kms_operator;
pub mod third_party;

/// Every page of `docs/_generated`, from the services that are registered in the simulator.
pub fn pages() -> xtask::docs::Files {
    let pages = sim::services::all().iter();
    xtask::docs::produce(pages.filter_map(|service| service.page()))
}
