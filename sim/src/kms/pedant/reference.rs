//! The plain reference: the whole service as the documentation tells it, without a task, a queue or a file.
//!
//! It says what an answer must be, never what the service did. Always: it changes only by what was asked and answered,
//! and by time.

use std::collections::BTreeMap;

use super::{
    counts::Counts,
    key::{Key, State},
    log::{Log, Use},
    op_ids::OpIds,
    refusal::{Refusal, refusal},
    settings::Settings,
};

pub struct Reference {
    pub settings: Settings,
    pub keys: BTreeMap<String, Key>,
    pub op_ids: OpIds,
    pub counts: Counts,
    pub log: Log,
    pub signed: Vec<Signed>,
    pub wrapped: Vec<Wrapped>,
    /// The public key of all evidence.
    pub attester: Option<String>,
    /// Records under the newest checkpoint that was seen.
    pub covered: u64,
}

/// Who asks: any tenant's keys are touched by somebody whom nobody asked for a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub actor: String,
    pub tenant: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Signed {
    pub kid: String,
    pub version: u32,
    pub message: Vec<u8>,
    pub sigs: serde_json::Value,
}

#[derive(Clone, Debug)]
pub struct Wrapped {
    pub kid: String,
    pub version: u32,
    pub blob: Vec<u8>,
    pub context: Vec<u8>,
    pub plain: Vec<u8>,
}

/// So many are remembered, to be asked about.
const REMEMBERED: usize = 24;

impl Reference {
    pub fn new(settings: Settings) -> Reference {
        Reference {
            keys: BTreeMap::new(),
            op_ids: OpIds::new(settings.op_id_results),
            counts: Counts::default(),
            log: Log::new(settings.strict),
            signed: Vec::new(),
            wrapped: Vec::new(),
            attester: None,
            covered: 0,
            settings,
        }
    }

    /// A key of another tenant is as good as absent.
    pub fn find(&self, caller: &Caller, kid: &str) -> Result<&Key, Refusal> {
        let key = self.keys.get(kid);
        let own = key.filter(|key| caller.may_touch(&key.tenant));
        own.ok_or_else(|| refusal("key_not_found"))
    }

    pub fn visible(&self, caller: &Caller) -> Vec<&Key> {
        let all = self.keys.values();
        all.filter(|key| caller.may_touch(&key.tenant)).collect()
    }

    /// Tells a use of a key to the log, and returns its number.
    pub fn used(&mut self, used: &Using<'_>, at_ms: (u64, u64)) -> u64 {
        let key = self
            .keys
            .get(used.kid)
            .expect("a key that is used is known");
        let told = Use {
            action: used.action,
            key,
            version: used.version,
            actor: &used.caller.actor,
            digests: used.digests.clone(),
            op_id: used.op_id,
            failed: used.failed,
            mark: used.mark,
        };
        self.counts.queued += u64::from(used.action != "attest");
        self.counts.told += match self.settings.strict {
            true => 2,
            false => 1,
        } + u64::from(used.mark.is_some());
        self.log.used(&told, at_ms)
    }

    /// The next number to seal with, and the mark if one is set before.
    pub fn seal(&mut self, kid: &str, version: u32) -> (Option<u64>, Option<u64>) {
        let range = self.settings.nonce_range;
        let key = self.keys.get_mut(kid).filter(|key| key.alg.counts_nonces);
        let Some(version) = key.and_then(|key| key.version_mut(version)) else {
            return (None, None);
        };
        let nonces = &mut version.nonces;
        let mark = (nonces.next >= nonces.mark).then(|| nonces.mark + range);
        nonces.mark = mark.unwrap_or(nonces.mark);
        nonces.next += 1;
        (Some(nonces.next - 1), mark)
    }

    pub fn remember_signed(&mut self, signed: Signed) {
        self.signed.push(signed);
        if self.signed.len() > REMEMBERED {
            self.signed.remove(0);
        }
    }

    pub fn remember_wrapped(&mut self, wrapped: Wrapped) {
        self.wrapped.push(wrapped);
        if self.wrapped.len() > REMEMBERED {
            self.wrapped.remove(0);
        }
    }

    /// The process ended in order, and another one was started: what was promised holds, counters begin anew, and
    /// numbers that were reserved for sealing are skipped.
    pub fn restarted(&mut self, now: u64) {
        self.log.ends.push(self.log.next);
        self.counts = Counts::default();
        self.op_ids.restarted(now);
        let versions = self.keys.values_mut().flat_map(|key| &mut key.versions);
        for version in versions {
            version.nonces.next = version.nonces.mark;
        }
    }

    /// When the service does something by itself.
    pub fn dues(&self) -> impl Iterator<Item = u64> {
        self.keys.values().flat_map(|key| {
            let destroyed = key.destructions().map(|(_, at_ms)| at_ms);
            destroyed.chain(key.rotation_due())
        })
    }

    pub fn next_due(&self) -> Option<u64> {
        self.dues().min()
    }

    /// The keys of which something is due by now.
    pub fn due_keys(&self, now: u64) -> Vec<String> {
        let is_due = |key: &&Key| {
            let rotates = key.rotation_due().is_some_and(|at| at <= now);
            rotates || key.destructions().any(|(_, at)| at <= now)
        };
        let due = self.keys.values().filter(is_due);
        due.map(|key| key.kid.clone()).collect()
    }

    /// Versions whose destruction is scheduled, with their moment.
    pub fn scheduled(&self) -> Vec<(String, u32, u64)> {
        let all = self.keys.values().flat_map(|key| {
            let due = key.destructions();
            due.map(|(version, at)| (key.kid.clone(), version, at))
        });
        all.collect()
    }

    pub fn state(&self, kid: &str, version: u32) -> Option<State> {
        Some(self.keys.get(kid)?.version(version)?.state)
    }
}

/// A use of a key, as it is told.
pub struct Using<'a> {
    pub caller: &'a Caller,
    pub action: &'static str,
    pub kid: &'a str,
    pub version: u32,
    pub digests: Vec<[u8; 32]>,
    pub op_id: Option<(&'a str, &'a [u8])>,
    pub failed: Option<&'static str>,
    pub mark: Option<u64>,
}

impl Caller {
    pub fn may_touch(&self, tenant: &str) -> bool {
        self.tenant.as_deref().is_none_or(|own| own == tenant)
    }
}
