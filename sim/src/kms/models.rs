//! The models of ron-kms as `sim models` checks them: small, but every state of them.

use ron_kms::{
    audit::log::Policy,
    models::audit::{AuditWorld, TIGHT},
};

use crate::models::{ModelKind, check, explore};

pub const MODELS: &[ModelKind] = &[
    ModelKind {
        name: "kms.audit.shed",
        about: "the audit log that counts what it cannot record; crashes and failing writes at any point",
        check: || check(audit(Policy::Shed)),
        explore: |addr| explore(audit(Policy::Shed), addr),
    },
    ModelKind {
        name: "kms.audit.strict",
        about: "the audit log that answers nothing it has not recorded",
        check: || check(audit(Policy::Strict)),
        explore: |addr| explore(audit(Policy::Strict), addr),
    },
];

fn audit(policy: Policy) -> AuditWorld {
    AuditWorld {
        policy,
        limits: TIGHT,
        operations: 2,
        kept: 1,
        crashes: 1,
        failures: 1,
        drops: 1,
        abandons: u8::from(policy == Policy::Strict),
        checkpoints: 1,
        follows: false,
        flaw: None,
    }
}
