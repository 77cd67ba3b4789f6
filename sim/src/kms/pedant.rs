//! The pedant: a client that is alone in a calm world, asks ron-kms one thing after the other at random, and knows from a
//! plain reference of its own what exactly must come back.
//!
//! Clients that check what they thought of let the rest go by; this one compares everything that an answer holds, what
//! was counted, and the log to its last record. Always: the reference shares no code with the service; the first
//! difference is told and ends the session.

mod algorithm;
mod attesting;
mod auditing;
mod changing;
mod counts;
mod importing;
mod key;
mod log;
mod malformed;
mod op_ids;
mod reading;
mod reference;
mod refusal;
mod repeating;
mod sealing;
mod settings;
mod signing;
mod travelling;
mod verifying;
mod wire;
mod wrapping;

use std::{collections::BTreeMap, sync::Mutex};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as B64};
use rand_core::Rng as _;
use serde_json::Value;

use self::{
    key::Key,
    reference::{Caller, Reference},
    refusal::Refusal,
    settings::Settings,
    wire::{Answer, Ask, Verdict, Wire},
};
use crate::{
    ops::Op,
    seed::{self, SimRng},
    workload::Clients,
};

/// What pedants know of their nodes, from one session to the next.
#[derive(Default)]
pub struct Pedants {
    known: Mutex<BTreeMap<String, Reference>>,
}

/// One session, by its number of steps.
pub struct Session<'a> {
    wire: Wire<'a>,
    rng: SimRng,
    /// The service, as it must be.
    it: Reference,
    caller: Caller,
    /// It may move the node's clock.
    travels: bool,
    /// It may stop the node and start it again.
    restarts: bool,
}

const STEPS: (u64, u64) = (120, 400);
const TENANTS: &[&str] = &["acme", "default", "zeta"];
/// Time alone changes something soon: no step is begun that could meet it halfway.
const SOON_MS: u64 = 400;

/// `arg` says what the session may do besides asking: bit 0 moves the clock, bit 1 restarts the node.
pub async fn session(clients: Clients, op: Op) {
    let known: std::sync::Arc<crate::kms::calls::Known> = clients.known();
    let pedants = &known.pedants;
    let known = pedants.known.lock().unwrap().remove(&op.on);
    let wire = Wire::new(&clients, &op);
    let config = clients.world().config_of(wire.node);
    let mut session = Session {
        rng: seed::stream(clients.world().seed(), &format!("pedant {}", op.key)),
        it: known.unwrap_or_else(|| Reference::new(Settings::of(&config))),
        caller: Caller {
            actor: "anonymous".to_owned(),
            tenant: None,
        },
        travels: op.arg & 1 != 0,
        restarts: op.arg & 2 != 0,
        wire,
    };
    let ended = session.run().await;
    let same = u64::from(ended.is_ok());
    let what = ended.err().unwrap_or_else(|| "all as expected".to_owned());
    clients.tell("client.pedant", same, format_args!("{what}"));
    if same == 1 {
        let it = session.it;
        pedants.known.lock().unwrap().insert(op.on.clone(), it);
    }
}

impl Session<'_> {
    async fn run(&mut self) -> Verdict {
        while self.it.keys.is_empty() {
            self.draw_caller();
            changing::create(self).await?;
        }
        let steps = self.pick(STEPS.0, STEPS.1);
        for _ in 0..steps {
            travelling::pass(self).await?;
            self.draw_caller();
            self.step().await?;
        }
        changing::retire(self).await?;
        travelling::pass(self).await?;
        counts::compare(self).await?;
        auditing::compare(self).await
    }

    async fn step(&mut self) -> Verdict {
        match self.pick(0, 99) {
            0..9 => changing::create(self).await,
            9..26 => signing::sign(self).await,
            26..35 => verifying::verify(self).await,
            35..42 => wrapping::wrap(self).await,
            42..49 => wrapping::unwrap(self).await,
            49..53 => wrapping::data_key(self).await,
            53..59 => repeating::repeat(self).await,
            59..64 => changing::rotate(self).await,
            64..67 => changing::switch(self).await,
            67..70 => changing::destroy(self).await,
            70..72 => changing::cancel(self).await,
            72..76 => changing::policy(self).await,
            76..79 => importing::import(self).await,
            79..82 => reading::show(self).await,
            82..85 => reading::show_version(self).await,
            85..88 => reading::list(self).await,
            88..90 => reading::key_set(self).await,
            90..92 => attesting::attest(self).await,
            92..95 => malformed::ask(self).await,
            95 => auditing::look(self).await,
            96 => counts::compare(self).await,
            97 => travelling::wait(self).await,
            _ => travelling::strike(self).await,
        }
    }

    // ------------------------------------------------------------------------------------- asking

    /// As the caller of this step.
    async fn send(&self, ask: Ask, right: bool) -> Verdict<Answer> {
        let ask = match &self.caller.tenant {
            None => ask,
            Some(tenant) => ask
                .with("x-user", self.caller.actor.clone())
                .with("x-groups", SCOPES)
                .with("x-tenant", tenant.clone()),
        };
        self.wire.send(&ask, right).await
    }

    /// Refused; by the engine if it came so far, which then counts its action.
    fn refuse(
        &mut self,
        answer: &Answer,
        action: Option<&'static str>,
        refusal: &Refusal,
    ) -> Verdict {
        answer.refused(refusal)?;
        let route = match refusal.code {
            "not_found" => "",
            _ => &answer.route,
        };
        self.it.counts.refuse(route, refusal.code);
        if let Some(action) = action {
            self.it.counts.operation(action, refusal.code);
        }
        Ok(())
    }

    /// The receipt of a number: with the record's place if the answer waited for it.
    fn receipt(&mut self, answer: &Answer, seq: u64, waited: bool) -> Verdict<Value> {
        let mut receipt = serde_json::json!({ "seq": seq });
        if waited || self.it.settings.strict {
            let index = &answer.json["receipt"]["index"];
            let last = self.it.log.places.last().map_or(0, |(_, index)| *index);
            let Some(place) = index.as_u64().filter(|index| *index >= last) else {
                return answer.differs(format_args!("an index from {last} on"), answer.text());
            };
            receipt["index"] = index.clone();
            self.it.log.places.push((seq, place));
        }
        Ok(receipt)
    }

    // ------------------------------------------------------------------------------------ drawing

    fn pick(&mut self, lo: u64, hi: u64) -> u64 {
        seed::pick(&mut self.rng, lo, hi)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.pick(1, n) == 1
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.pick(0, all.len() as u64 - 1) as usize]
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.rng.fill_bytes(&mut bytes);
        bytes
    }

    /// Printable, of this length.
    fn label(&mut self, len: usize) -> String {
        let all = (0..len).map(|_| char::from(self.pick(0x21, 0x7e) as u8));
        all.collect()
    }

    fn draw_caller(&mut self) {
        if self.it.settings.ingress {
            let tenant = self.one_of(TENANTS).to_owned();
            let actor = self.one_of(&["alice", "bob"]).to_owned();
            self.caller = Caller {
                actor,
                tenant: Some(tenant),
            };
        }
    }

    /// One of the caller's keys that fits, mostly; now and then another, or none that is there.
    fn draw_key(&mut self, fits: impl Fn(&Key) -> bool) -> String {
        let all: Vec<String> = match self.one_in(12) {
            true => self.it.keys.keys().cloned().collect(),
            false => {
                let own = self.it.visible(&self.caller).into_iter();
                own.filter(|key| fits(key))
                    .map(|key| key.kid.clone())
                    .collect()
            }
        };
        match all.is_empty() || self.one_in(40) {
            true => B64.encode(self.bytes(16)),
            false => all[self.pick(0, all.len() as u64 - 1) as usize].clone(),
        }
    }

    /// One that signs, or wraps; now and then one that has versions out of use.
    fn draw_key_to(&mut self, signs: bool) -> String {
        let odd = |key: &Key| key.alg.signs() == signs && key.is_odd();
        let any = self.it.visible(&self.caller).into_iter().any(odd);
        match any && self.one_in(5) {
            true => self.draw_key(odd),
            false => self.draw_key(|key| key.alg.signs() == signs),
        }
    }

    /// Of this key: none named, the head, an older one, or one too many.
    fn draw_version(&mut self, kid: &str) -> Option<u32> {
        let key = self.it.keys.get(kid);
        let (head, lowest) = key.map_or((1, 1), |key| (key.head(), key.min_version));
        if lowest > 1 && self.one_in(4) {
            return Some(self.pick(1, u64::from(lowest) - 1) as u32);
        }
        match self.pick(0, 11) {
            0..6 => None,
            6..8 => Some(head),
            8..11 => Some(self.pick(1, head.into()) as u32),
            _ => Some(head + 1),
        }
    }
}

const SCOPES: &str = "kms:sign,kms:verify,kms:wrap,kms:unwrap,kms:rotate,kms:read,kms:audit";

/// A key as a request names it.
fn reference_to(kid: &str, version: Option<u32>) -> String {
    match version {
        None => kid.to_owned(),
        Some(version) => format!("{kid}#v{version}"),
    }
}

fn binary(value: &Value) -> Option<Vec<u8>> {
    B64.decode(value.as_str()?).ok()
}
