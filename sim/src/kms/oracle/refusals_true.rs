//! A refusal says something true: no key is missing that was made, none is disabled that nobody disabled.

use std::collections::BTreeSet;

use crate::{
    kms::calls::WRONG,
    oracle::{EVERYWHERE, Oracle, OracleKind, Verdict},
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "kms.refusals_true",
    law: "a request that is right is refused only for a reason that there is: what was made is found, what nobody took out of use is in use, nothing breaks inside, and only what passes is to be tried again; no tenant has more under way than its share",
    premise: EVERYWHERE,
    make: || Box::new(RefusalsTrue::default()),
};

#[derive(Default)]
struct RefusalsTrue {
    /// Node and key, told to be made.
    made: BTreeSet<String>,
    /// Node, key and change: asked for, whatever came of it.
    asked: BTreeSet<String>,
    /// Node and operation id: it has its result, which is kept.
    done_ops: BTreeSet<String>,
    /// A task was made to fail: what it had in hand may be lost.
    struck: bool,
    /// Operations that a tenant may have in flight.
    quota: u64,
    /// The code that was told last: how many were in flight comes right behind it.
    refused: String,
    /// Something else than the backend fails or failed: a request may wait anywhere.
    disturbed: bool,
    /// Told that whoever had it is gone: true only if somebody failed or was stopped by force.
    lost: Option<String>,
}

/// Because of the moment: anybody may meet them.
const PASSING: &[(&str, u64)] = &[
    ("busy", 429),
    ("tenant_busy", 429),
    ("rate_limited", 429),
    ("draining", 503),
    ("timeout", 504),
    ("deadline_exceeded", 504),
    ("body_timeout", 408),
    ("worker_lost", 503),
    ("backend_unavailable", 503),
    ("store_unavailable", 503),
    ("nonce_unavailable", 503),
    ("audit_unavailable", 503),
    ("op_id_in_flight", 409),
    ("verify_cache_expired", 503),
];

/// The same, for requests that need a reason besides.
const PASSING_ELSEWHERE: &[&str] = &["not_covered"];

/// What a request that is wrong on purpose may be told.
const WRONGED: &[&str] = &[
    "blob_invalid",
    "destroy_scheduled",
    "head_moved",
    "signature_invalid",
    "too_many_versions",
    "version_disabled",
];

impl Oracle for RefusalsTrue {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        let (event, detail, id) = match &event.what {
            What::Probe { event, detail, id } => (event, detail, id),
            What::Fault { text } => {
                self.struck |= text.starts_with("task.panic");
                self.disturbed |= !text.starts_with("backend.");
                return Ok(());
            }
            What::Died { .. } => {
                self.lost = None;
                return Ok(());
            }
            What::Stopped { report } if report.aborted == 0 => {
                return self.lost.take().map_or(Ok(()), Err);
            }
            _ => return Ok(()),
        };
        match *event {
            "client.made" => _ = self.made.insert(detail.clone()),
            "client.changing" => _ = self.asked.insert(detail.clone()),
            "client.done_op" => _ = self.done_ops.insert(detail.clone()),
            "kms.tenant_quota" => self.quota = *id,
            "client.refused" => {
                self.refused = detail.split(' ').nth(3).unwrap_or_default().to_owned();
                return self.judge(*id, detail);
            }
            "client.crowded" if self.refused == "tenant_busy" && *id <= self.quota => {
                return Err(format!(
                    "a tenant was told that it is too busy with {id} requests in flight, and {} are allowed",
                    self.quota
                ));
            }
            "client.asking_id" if self.refused == "op_id_in_flight" && *id <= 1 => {
                return Err(
                    "an operation id was told to be in flight, and nobody else had asked with it"
                        .to_owned(),
                );
            }
            "client.waiting" if *id > self.quota && !self.disturbed => {
                return Err(format!(
                    "{detail}: {id} requests of one tenant are under way, and {} are allowed",
                    self.quota
                ));
            }
            _ => {}
        }
        Ok(())
    }
}

impl RefusalsTrue {
    fn judge(&mut self, status: u64, detail: &str) -> Verdict {
        let words: Vec<&str> = detail.split(' ').collect();
        let [node, kid, request, code, op_id, again] = words[..] else {
            return Err(format!("{detail:?} tells no refusal"));
        };
        let asked = |what: &str| self.asked.contains(&format!("{node} {kid} {what}"));
        if code == "worker_lost" && !self.struck {
            let why = format!("{request} was told that its worker is gone, and none failed");
            self.lost.get_or_insert(why);
        }
        let passing = PASSING.iter().find(|(name, _)| *name == code);
        let passes = passing.is_some() || PASSING_ELSEWHERE.contains(&code);
        if (again == "true") != passes {
            return Err(format!(
                "{request} was refused with {code}, which passes: {passes}; it says {again}"
            ));
        }
        let there_is = match code {
            // Nothing but the log is asked for a result that is kept.
            "backend_unavailable" if self.done_ops.contains(&format!("{node} {op_id}")) => false,
            _ if passing.is_some() => passing.is_some_and(|(_, is)| *is == status),
            _ if request == WRONG => WRONGED.contains(&code),
            "version_disabled" => asked("disable") || asked("destroy"),
            "destroy_scheduled" | "version_destroyed" => asked("destroy"),
            // The minimum only rises.
            "below_min_version" | "min_version_out_of_range" => asked("minimum"),
            // Cancelled what nobody scheduled, or scheduled what is destroyed.
            "not_scheduled" => request == "kms.cancel",
            // All that it had is destroyed or to be destroyed.
            "invalid_request" => request == "kms.destroy_all",
            "op_id_conflict" => request == "kms.sign_op",
            // Not yet, or no longer: partial bundles are kept for a short time.
            "not_covered" | "record_not_found" => request == "kms.audit",
            "key_not_found" => !self.made.contains(&format!("{node} {kid}")),
            _ => false,
        };
        match there_is {
            true => Ok(()),
            false => Err(format!(
                "{request} with {kid} was refused by {node}: {status} {code}, for which there is no reason"
            )),
        }
    }
}
