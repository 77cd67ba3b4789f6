//! The laws of ron-kms, one file each, and what they have in common: the log as it lies on a node's disk.

pub mod accounted;
pub mod all_served;
pub mod answered_in_time;
mod calm;
pub mod changes_told;
pub mod covered_at_stop;
pub mod covered_soon;
pub mod destroyed_in_time;
pub mod destroyed_is_gone;
pub mod digests_told;
pub mod disabled_never_signs;
pub mod drops_counted;
pub mod fair;
pub mod gaps_reasoned;
pub mod heads;
pub mod heads_linear;
mod held_keys;
pub mod keys_refreshed;
pub mod log_verifies;
pub mod newest_served;
pub mod nonce_once;
pub mod numbers_once;
pub mod old_log;
pub mod op_id_once;
pub mod pedant_content;
pub mod reads_plainly;
pub mod ready_tells;
pub mod refusals_true;
pub mod reload_kept;
pub mod results_hold;
pub mod rot_mended;
pub mod rot_noticed;
pub mod schedules_kept;
pub mod strict;
pub mod tenants_apart;
pub mod tokens_judged;
pub mod verify_in_time;

use std::collections::{BTreeMap, BTreeSet};

use ron_kms::{
    audit::{
        frames::{HEADER_LEN, Scanner},
        record::{Event, Record, Seq},
    },
    journal, topology,
};

use crate::oracle::{NodeView, WorldView};

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
