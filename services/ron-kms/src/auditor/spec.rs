//! What the audit log tells of itself to whoever follows its model; nothing of it exists in production.
//!
//! Events are `spec.kms.audit.*`, each at the moment its step of the machine was taken.

use std::fmt;

use ron_core::Env;

use crate::audit::{
    log::{AuditLog, Limits, Policy, Submission},
    record::Event,
    sequence::Missing,
};

/// The start: what was read, and what comes of it.
pub fn recovered(env: &Env, policy: Policy, limits: &Limits, log: &AuditLog) {
    let strict = policy == Policy::Strict;
    let missing = log.restart_gap().unwrap_or(Missing {
        first: 0,
        end: 0,
        at_most: 0,
    });
    let Missing {
        first,
        end,
        at_most,
    } = missing;
    env.probe(
        "spec.kms.audit.recovered",
        log.size(),
        format_args!(
            "{} {} {} {} {} {first} {end} {at_most}",
            strict,
            limits.reserve,
            log.covered(),
            log.next(),
            log.is_ready()
        ),
    );
}

/// A batch, item by item: `5` under a number, `i` intent, `k` change of a key, `n` nonce mark.
pub struct Items<'a>(pub &'a [Submission]);

impl fmt::Display for Items<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, submission) in self.0.iter().enumerate() {
            if n > 0 {
                f.write_str(" ")?;
            }
            match (submission.seq, &submission.event) {
                (Some(seq), _) => write!(f, "{seq}")?,
                (None, Event::Intent { .. }) => f.write_str("i")?,
                (None, Event::NonceMark { .. }) => f.write_str("n")?,
                (None, _) => f.write_str("k")?,
            }
        }
        Ok(())
    }
}
