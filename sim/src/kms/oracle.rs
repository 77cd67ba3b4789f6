//! The laws of ron-kms, one file each, and what they have in common: the log as it lies on a node's disk.

mod accounted;
mod all_served;
mod answered_in_time;
mod calm;
mod changes_told;
mod covered_at_stop;
mod covered_soon;
mod destroyed_in_time;
mod destroyed_is_gone;
pub mod digests_told;
mod disabled_never_signs;
mod drops_counted;
mod fair;
mod gaps_reasoned;
mod heads;
mod heads_linear;
mod held_keys;
mod keys_refreshed;
mod log_verifies;
mod newest_served;
mod nonce_once;
mod numbers_once;
mod old_log;
mod op_id_once;
mod pedant_content;
mod reads_plainly;
mod ready_tells;
mod refusals_true;
mod reload_kept;
mod results_hold;
mod rot_mended;
mod rot_noticed;
mod schedules_kept;
mod strict;
mod tenants_apart;
mod tokens_judged;
mod verify_in_time;

use std::collections::{BTreeMap, BTreeSet};

use ron_kms::{
    audit::{
        frames::{HEADER_LEN, Scanner},
        record::{Event, Record, Seq},
    },
    journal, topology,
};

use crate::{
    oracle::{NodeView, OracleKind, WorldView},
    scenario::Scenario,
};

pub const LAWS: &[OracleKind] = &[
    log_verifies::KIND,
    accounted::KIND,
    strict::KIND,
    covered_at_stop::KIND,
    heads::KIND,
    heads_linear::KIND,
    tenants_apart::KIND,
    verify_in_time::KIND,
    nonce_once::KIND,
    numbers_once::KIND,
    destroyed_in_time::KIND,
    digests_told::KIND,
    changes_told::KIND,
    all_served::KIND,
    disabled_never_signs::KIND,
    op_id_once::KIND,
    results_hold::KIND,
    pedant_content::KIND,
    refusals_true::KIND,
    reads_plainly::KIND,
    drops_counted::KIND,
    ready_tells::KIND,
    answered_in_time::KIND,
    covered_soon::KIND,
    newest_served::KIND,
    old_log::KIND,
    schedules_kept::KIND,
    destroyed_is_gone::KIND,
    gaps_reasoned::KIND,
    fair::KIND,
    rot_noticed::KIND,
    rot_mended::KIND,
    tokens_judged::KIND,
    keys_refreshed::KIND,
    reload_kept::KIND,
    super::conformance::audit::KIND,
    super::conformance::keys::KIND,
];

/// Premise of a law about some setting: every node of ron-kms has it, with this value.
fn sets(scenario: &Scenario, key: &str, value: Option<&str>) -> bool {
    let mut own = scenario.node.iter().filter(|n| n.service == topology::NAME);
    own.all(|node| {
        let set = node.config.get(key);
        set.is_some_and(|set| value.is_none_or(|value| set.as_str() == Some(value)))
    })
}

/// The nodes that run ron-kms.
fn nodes(view: &WorldView) -> impl Iterator<Item = &NodeView> {
    view.nodes.iter().filter(|n| n.service == topology::NAME)
}

/// The whole records of a node's log.
fn records(node: &NodeView) -> Vec<Record> {
    let bytes = node.disk.read_file(journal::LOG).unwrap_or_default();
    let mut records = Vec::new();
    let mut scanner = Scanner::new();
    scanner.feed(bytes.get(HEADER_LEN..).unwrap_or_default(), |framed| {
        records.push(framed.record);
    });
    scanner.finish(|framed| records.push(framed.record));
    records
}

/// Which numbers a log accounts for.
#[derive(Default)]
struct Accounts {
    /// With the index of their first record.
    recorded: BTreeMap<Seq, u64>,
    /// Told as missing, one by one.
    gaps: BTreeSet<Seq>,
    /// Admitted as perhaps missing: from, to.
    restarts: Vec<(Seq, Seq)>,
}

impl Accounts {
    fn of(records: &[Record]) -> Accounts {
        let mut accounts = Accounts::default();
        for record in records {
            match &record.event {
                Event::Gap { first, count, .. } => accounts.gaps.extend(*first..first + count),
                Event::RestartGap { first, end, .. } => accounts.restarts.push((*first, *end)),
                event => {
                    if let Some(seq) = event.seq() {
                        accounts.recorded.entry(seq).or_insert(record.index);
                    }
                }
            }
        }
        accounts
    }

    fn admits(&self, seq: Seq) -> bool {
        let within = |(first, end): &(Seq, Seq)| (*first..*end).contains(&seq);
        self.gaps.contains(&seq) || self.restarts.iter().any(within)
    }
}

/// What a client told with a receipt.
struct Told<'a> {
    node: &'a str,
    key: &'a str,
    began_us: u64,
    index: Option<u64>,
}

impl<'a> Told<'a> {
    fn parse(detail: &'a str) -> Option<Told<'a>> {
        let mut words = detail.split(' ');
        Some(Told {
            node: words.next()?,
            key: words.next()?,
            began_us: words.next()?.parse().ok()?,
            index: words.next()?.parse().ok(),
        })
    }
}
