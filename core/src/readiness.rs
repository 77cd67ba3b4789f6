//! Placeholder of the readiness report, until the kernel's own lands.

use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReadinessStatus {
    pub ready: bool,
    pub missing: Vec<Missing>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Missing {
    pub gate: String,
    pub reason: String,
}
