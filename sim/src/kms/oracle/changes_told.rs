//! The record of a change says what was changed: which key, which version, and to what.

use std::collections::BTreeMap;

use ron_kms::audit::record::{Event as Told, KeyChange};

use super::{nodes, records};
use crate::{
    oracle::{EVERYWHERE, Oracle, OracleKind, Verdict, WorldView},
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "kms.changes_told",
    law: "the record of an answered change names its key, its version and what it was changed to",
    premise: EVERYWHERE,
    make: || Box::new(ChangesTold::default()),
};

#[derive(Default)]
struct ChangesTold {
    /// Node, number, what the record must say.
    answered: Vec<(String, u64, String)>,
}

impl Oracle for ChangesTold {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        if let What::Probe {
            event: "client.change_told",
            id,
            detail,
        } = &event.what
            && let Some((node, change)) = detail.split_once(' ')
        {
            let told = (node.to_owned(), *id, change.to_owned());
            self.answered.push(told);
        }
        Ok(())
    }

    /// A record that is not there is another law's matter.
    fn finish(&mut self, view: &WorldView) -> Verdict {
        for node in nodes(view) {
            let records = records(node);
            let recorded = records.iter().filter_map(|record| shown(&record.event));
            let recorded: BTreeMap<u64, String> = recorded.collect();
            let own = self.answered.iter().filter(|(on, ..)| *on == node.name);
            for (_, seq, asked) in own {
                if let Some(told) = recorded.get(seq).filter(|told| *told != asked) {
                    return Err(format!(
                        "change {seq} was {asked}, and its record tells {told}"
                    ));
                }
            }
        }
        Ok(())
    }
}

fn shown(event: &Told) -> Option<(u64, String)> {
    let Told::Key {
        seq,
        kid,
        version,
        change,
        ..
    } = event
    else {
        return None;
    };
    let what = match change {
        KeyChange::Rotated { .. } => format!("rotated {version}"),
        KeyChange::Disabled => format!("disabled {version}"),
        KeyChange::Enabled => format!("enabled {version}"),
        KeyChange::DestroyScheduled { .. } => format!("destroy_scheduled {version}"),
        KeyChange::DestroyCancelled => format!("destroy_cancelled {version}"),
        KeyChange::MinVersion { version } => format!("min_version {version}"),
        _ => return None,
    };
    Some((*seq, format!("{kid} {what}")))
}
