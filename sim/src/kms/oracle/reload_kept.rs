//! Settings that are read anew are in force as a whole or not at all.
//!
//! A file with anything wrong in it is refused and changes nothing; one that is right is in force once that is answered,
//! but for what only a start applies, which is named and keeps its value.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    kms::calls::operator::Written,
    oracle::{EVERYWHERE, Oracle, OracleKind, Verdict},
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "config.reload_kept",
    law: "settings with an error change nothing and are refused; others are in force once read, but for those that need a restart, which are named",
    premise: EVERYWHERE,
    make: || Box::new(ReloadKept::default()),
};

/// `rotate_after_min_ms` of a process that was told nothing else.
const LIMIT_MS: u64 = 60_000;
/// From the answer on a reload until it is in force.
const TAKES: Duration = Duration::from_millis(500);

#[derive(Default)]
struct ReloadKept {
    /// By node: the limits that can be in force, each with when it may have ended.
    limits: BTreeMap<u32, Vec<(u64, Option<Duration>)>>,
}

impl Oracle for ReloadKept {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        let node = event.node.unwrap_or_default();
        let What::Probe {
            event: name,
            detail,
            ..
        } = &event.what
        else {
            if let What::Started { .. } = event.what {
                self.limits.insert(node, vec![(LIMIT_MS, None)]);
            }
            return Ok(());
        };
        match *name {
            "client.settings_read" => self.read(event.at, &written(detail)?),
            "client.settings_refused" => match written(detail)?.wrong {
                Some(_) => Ok(()),
                None => Err(format!("settings without an error were refused: {detail}")),
            },
            "client.settings_unsure" => {
                let written = written(detail)?;
                let limits = self.limits.entry(written.node).or_default();
                limits.push((written.limit_ms, None));
                Ok(())
            }
            "client.limit_tried" => self.tried(detail),
            _ => Ok(()),
        }
    }
}

impl ReloadKept {
    fn read(&mut self, at: Duration, written: &Written) -> Verdict {
        if let Some(wrong) = &written.wrong {
            return Err(format!("settings with {wrong:?} were taken"));
        }
        let limits = self.limits.entry(written.node).or_default();
        let known = |(limit, gone): &(u64, Option<Duration>)| gone.is_none().then_some(*limit);
        let before: Vec<u64> = limits.iter().filter_map(known).collect();
        // Who knows what was in force knows what changes.
        if let [before] = before[..] {
            let named = !written.applied.is_empty();
            if named != (before != written.limit_ms) {
                return Err(format!("from a limit of {before} ms: {written:?}"));
            }
        }
        let named = written.needs_restart == ["signers"];
        let right = if written.restart {
            named
        } else {
            written.needs_restart.is_empty()
        };
        if !right {
            return Err(format!(
                "what needs a restart is not what was named: {written:?}"
            ));
        }
        for (_, gone) in limits.iter_mut().filter(|(_, gone)| gone.is_none()) {
            *gone = Some(at + TAKES);
        }
        limits.push((written.limit_ms, None));
        Ok(())
    }

    fn tried(&self, detail: &str) -> Verdict {
        let words: Vec<&str> = detail.split(' ').collect();
        let [node, began_us, asked_ms, taken] = words[..] else {
            return Err(format!("{detail:?} cannot be read"));
        };
        let number = |word: &str| word.parse::<u64>().map_err(|error| error.to_string());
        let (began, asked) = (Duration::from_micros(number(began_us)?), number(asked_ms)?);
        let limits = self.limits.get(&(number(node)? as u32));
        let mut limits = limits.into_iter().flatten();
        let fits = |(limit, gone): &(u64, Option<Duration>)| {
            let in_force = gone.is_none_or(|gone| began < gone);
            in_force && (asked >= *limit) == (taken == "true")
        };
        if limits.any(fits) {
            return Ok(());
        }
        Err(format!(
            "a rotation after {asked} ms was {}, against the settings in force",
            if taken == "true" { "taken" } else { "refused" }
        ))
    }
}

fn written(detail: &str) -> Result<Written, String> {
    serde_json::from_str(detail).map_err(|error| error.to_string())
}
