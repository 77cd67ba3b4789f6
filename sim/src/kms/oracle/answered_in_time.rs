//! Every use and change of a key is answered by its deadline, whatever the backend does.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    oracle::{EVERYWHERE, Oracle, OracleKind, Verdict},
    trace::{Event, Outcome, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "kms.answered_in_time",
    law: "while nothing but the backend fails, a request is answered within the deadline of its kind",
    premise: EVERYWHERE,
    make: || Box::new(AnsweredInTime::default()),
};

/// The way there and back, and the record of it.
const ON_THE_WAY: Duration = Duration::from_millis(250);

#[derive(Default)]
struct AnsweredInTime {
    /// Of sign, wrap, unwrap, rotate; the longest where nodes differ.
    limits: [Duration; 4],
    asked: BTreeMap<u64, (&'static str, Duration)>,
    /// Something else fails or failed: nobody can tell by whose fault an answer is late.
    disturbed: bool,
}

impl Oracle for AnsweredInTime {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        match &event.what {
            What::Probe {
                event: "kms.deadlines",
                detail,
                ..
            } => {
                let told = detail.split(' ').map(|ms| ms.parse().unwrap_or(0));
                for (limit, ms) in self.limits.iter_mut().zip(told) {
                    *limit = (*limit).max(Duration::from_millis(ms));
                }
            }
            What::Fault { text } if !text.starts_with("backend.") => self.disturbed = true,
            What::Request { request, op, .. } => {
                self.asked.insert(*request, (op, event.at));
            }
            What::Outcome { request, outcome } => {
                if let Some((op, since)) = self.asked.remove(request) {
                    return self.ended(op, event.at - since, outcome);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl AnsweredInTime {
    fn ended(&self, op: &str, took: Duration, outcome: &Outcome) -> Verdict {
        let [sign, wrap, unwrap, rotate] = self.limits;
        let limit = match op {
            "kms.sign" | "kms.sign_op" | "kms.batch" => sign,
            "kms.wrap" | "kms.wrap_op" | "kms.data_key" => wrap,
            "kms.unwrap" => unwrap,
            "kms.rotate" | "kms.switch" | "kms.policy" | "kms.destroy" | "kms.cancel" => rotate,
            _ => return Ok(()),
        };
        let late = took > limit + ON_THE_WAY;
        match outcome {
            Outcome::Answered(status) if late && !self.disturbed => Err(format!(
                "{op} was answered with {status} after {} ms, and {} are allowed",
                took.as_millis(),
                limit.as_millis()
            )),
            _ => Ok(()),
        }
    }
}
