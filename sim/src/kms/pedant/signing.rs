//! Signing: one message or many, whole or hashed, under an id or not; every signature is checked by its standard.
//!
//! Refused before the key is used, an operation leaves no record; refused by the key itself, it leaves one that says
//! so. Always: a batch is one number and one record, whose digests are those of its messages in order.

use aws_lc_rs::digest;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as B64};
use serde_json::{Value, json};

use super::{
    Session,
    algorithm::{Alg, BATCH},
    attesting,
    op_ids::{Begin, Kept},
    reading,
    reference::{Signed, Using},
    reference_to,
    refusal::{Refusal, refusal},
    wire::{Answer, Ask, Verdict},
};
use crate::kms::plain_log::sha256;

pub const SIGN: &str = "/v1/kms/sign";

/// A message, and how it is sent.
#[derive(Clone, Debug)]
pub struct Input {
    pub message: Vec<u8>,
    /// The hash's name and bytes in its place.
    pub prehash: Option<(&'static str, Vec<u8>)>,
}

impl Input {
    fn draw(s: &mut Session<'_>, alg: Option<Alg>) -> Input {
        let length = s.one_of(&[0, 1, 5, 33, 200]);
        let message = s.bytes(length);
        let prehash = match (alg.and_then(|alg| alg.prehash), s.pick(0, 19)) {
            (Some((name, _)), 0..7) => Some((name, hash(name, &message))),
            (Some((name, len)), 7) => Some((name, s.bytes(len - 1))),
            (Some(("sha-256", _)), 8) | (None, 0) => Some(("sha-384", hash("sha-384", &message))),
            (Some(_), 8) => Some(("sha-256", hash("sha-256", &message))),
            // The right length under another name.
            (Some((name, len)), 9) => Some((other_hash(name), s.bytes(len))),
            _ => None,
        };
        Input { message, prehash }
    }

    pub fn json(&self) -> Value {
        match &self.prehash {
            None => json!({ "message": B64.encode(&self.message) }),
            Some((alg, digest)) => {
                json!({ "prehash": { "alg": alg, "digest": B64.encode(digest) } })
            }
        }
    }

    /// Only where the algorithm hashes first, and only that hash, stands a hash for its message.
    pub fn is_taken_by(&self, alg: Alg) -> bool {
        let Some((name, digest)) = &self.prehash else {
            return true;
        };
        alg.prehash == Some((*name, digest.len()))
    }

    /// As the record has it: a hash of its length is taken as it is.
    fn told(&self) -> [u8; 32] {
        match &self.prehash {
            None => sha256(&[&self.message]),
            Some((_, digest)) => digest[..].try_into().unwrap_or_else(|_| sha256(&[digest])),
        }
    }
}

fn other_hash(name: &str) -> &'static str {
    match name {
        "sha-384" => "sha-256",
        _ => "sha-384",
    }
}

pub fn hash(name: &str, message: &[u8]) -> Vec<u8> {
    let kind = match name {
        "sha-384" => &digest::SHA384,
        _ => &digest::SHA256,
    };
    digest::digest(kind, message).as_ref().to_vec()
}

pub async fn sign(s: &mut Session<'_>) -> Verdict {
    let kid = s.draw_key_to(true);
    let version = s.draw_version(&kid);
    let alg = s.it.keys.get(&kid).map(|key| key.alg);
    let count = draw_count(s, alg);
    let inputs: Vec<Input> = match count {
        Some(count @ 10..) => vec![Input::draw(s, None); count],
        count => (0..count.unwrap_or(1))
            .map(|_| Input::draw(s, alg))
            .collect(),
    };
    let mut body = match count {
        None => inputs[0].json(),
        Some(_) => json!({ "messages": inputs.iter().map(Input::json).collect::<Vec<Value>>() }),
    };
    body["kid"] = json!(reference_to(&kid, version));
    let attest = s.one_in(5);
    if attest || s.one_in(8) {
        body["attest"] = json!(attest);
    }
    let many = alg
        .zip(count)
        .is_some_and(|(alg, count)| count > alg.most_kept);
    let op_id = match many {
        true => new_op_id(s, &mut body),
        false => draw_op_id(s, &mut body),
    };
    let ask = Asked {
        kid,
        version,
        inputs,
        single: count.is_none(),
        attest,
        op_id,
        body: body.to_string(),
    };
    ask.carry_out(s).await
}

/// With a version that is named.
pub async fn sign_with(s: &mut Session<'_>, kid: &str, version: u32) -> Verdict {
    plainly(s, kid, Some(version), None).await
}

/// Under the id of a result that is gone by now, with a key of its tenant.
pub async fn sign_under(s: &mut Session<'_>, kept: &Kept) -> Verdict {
    let of_tenant = s.it.keys.values().filter(|key| key.tenant == kept.tenant);
    let mut signing = of_tenant.filter(|key| key.alg.signs() && !key.alg.dear);
    match signing.next().map(|key| key.kid.clone()) {
        None => Ok(()),
        Some(kid) => plainly(s, &kid, None, Some(kept.id.clone())).await,
    }
}

async fn plainly(
    s: &mut Session<'_>,
    kid: &str,
    version: Option<u32>,
    op_id: Option<String>,
) -> Verdict {
    let input = Input {
        message: s.bytes(9),
        prehash: None,
    };
    let mut body = input.json();
    body["kid"] = json!(reference_to(kid, version));
    if let Some(id) = &op_id {
        body["op_id"] = json!(id);
    }
    let asked = Asked {
        kid: kid.to_owned(),
        version,
        inputs: vec![input],
        single: true,
        attest: false,
        op_id,
        body: body.to_string(),
    };
    asked.carry_out(s).await
}

fn draw_count(s: &mut Session<'_>, alg: Option<Alg>) -> Option<usize> {
    let dear = alg.is_some_and(|alg| alg.dear);
    let cheapest = alg.is_some_and(|alg| alg.name == "ed25519");
    match s.pick(0, 299) {
        // One more than fits beside the record under an id.
        0..12 if dear => alg.map(|alg| alg.most_kept + 1),
        0..180 => None,
        180..290 if dear => Some(s.pick(1, 2) as usize),
        180..290 => Some(s.pick(1, 5) as usize),
        290..298 if cheapest => Some(100),
        298 if cheapest => Some(BATCH),
        _ => Some(1),
    }
}

/// An id that is new, mostly, and else one that stands for something else already.
pub fn draw_op_id(s: &mut Session<'_>, body: &mut Value) -> Option<String> {
    let now = s.wire.now_ms();
    if !s.one_in(4) || !s.it.op_ids.is_sure(now, super::SOON_MS) {
        return None;
    }
    let known = s.it.op_ids.kept(now).iter().map(|kept| kept.id.clone());
    let known: Vec<String> = known.collect();
    if known.is_empty() || !s.one_in(5) {
        return new_op_id(s, body);
    }
    let id = known[s.pick(0, known.len() as u64 - 1) as usize].clone();
    body["op_id"] = json!(id);
    Some(id)
}

fn new_op_id(s: &mut Session<'_>, body: &mut Value) -> Option<String> {
    if !s.it.op_ids.is_sure(s.wire.now_ms(), super::SOON_MS) {
        return None;
    }
    let length = s.one_of(&[1, 9, 9, 9, 128]);
    let id = s.label(length);
    body["op_id"] = json!(id);
    Some(id)
}

struct Asked {
    kid: String,
    version: Option<u32>,
    inputs: Vec<Input>,
    single: bool,
    attest: bool,
    op_id: Option<String>,
    body: String,
}

impl Asked {
    async fn carry_out(self, s: &mut Session<'_>) -> Verdict {
        let now = s.wire.now_ms();
        if self.is_repeat(s, now) {
            return Ok(());
        }
        // So many of a dear algorithm are asked for only to be refused.
        let dear = s.it.keys.get(&self.kid).is_some_and(|key| key.alg.dear);
        let plan = self.plan(s, now);
        if dear && self.inputs.len() > 2 && plan.is_ok() {
            return Ok(());
        }
        let fails = self.fails(s);
        let ask = Ask::raw("POST", SIGN, self.body.clone());
        let answer = s.send(ask, plan.is_ok() && fails.is_none()).await?;
        let version = match plan {
            Err(refused) => return s.refuse(&answer, Some("sign"), &refused),
            Ok(version) => version,
        };
        let seq = self.record(s, &answer, version, fails.as_ref());
        match fails {
            Some(failed) => s.refuse(&answer, Some("sign"), &failed),
            None => self.done(s, &answer, version, seq).await,
        }
    }

    /// By chance the very request that the id stands for: repeating is another step.
    fn is_repeat(&self, s: &mut Session<'_>, now: u64) -> bool {
        let tenant = s.it.keys.get(&self.kid).map(|key| key.tenant.clone());
        let (Some(tenant), Some(id)) = (tenant, &self.op_id) else {
            return false;
        };
        let begun = s.it.op_ids.begin(&tenant, id, self.body.as_bytes(), now);
        matches!(begun, Begin::Again(_))
    }

    /// The version that signs, or why none is asked to.
    fn plan(&self, s: &mut Session<'_>, now: u64) -> Result<u32, Refusal> {
        let key = s.it.find(&s.caller, &self.kid)?.clone();
        if let Some(id) = &self.op_id {
            match s
                .it
                .op_ids
                .begin(&key.tenant, id, self.body.as_bytes(), now)
            {
                Begin::New => {}
                Begin::Conflict | Begin::Again(_) => return Err(refusal("op_id_conflict")),
            }
            // A key that does not sign at all keeps nothing: each message takes up a few bytes then, too.
            if key.alg.signs() && self.inputs.len() > key.alg.most_kept {
                return Err(refusal("batch_too_large"));
            }
        }
        let version = key.meant(self.version);
        key.may_produce("sign", version, now).map(|()| version)
    }

    fn fails(&self, s: &Session<'_>) -> Option<Refusal> {
        let alg = s.it.keys.get(&self.kid)?.alg;
        let taken = self.inputs.iter().all(|input| input.is_taken_by(alg));
        (!taken).then(|| refusal("prehash_invalid"))
    }

    fn record(
        &self,
        s: &mut Session<'_>,
        answer: &Answer,
        version: u32,
        fails: Option<&Refusal>,
    ) -> u64 {
        let op_id = self.op_id.as_deref().map(|id| (id, self.body.as_bytes()));
        let using = Using {
            caller: &s.caller,
            action: "sign",
            kid: &self.kid,
            version,
            digests: self.inputs.iter().map(Input::told).collect(),
            op_id,
            failed: fails.map(|failed| failed.code),
            mark: None,
        };
        s.it.used(&using, (answer.began_ms, answer.ended_ms))
    }

    async fn done(self, s: &mut Session<'_>, answer: &Answer, version: u32, seq: u64) -> Verdict {
        s.it.counts.operation("sign", "ok");
        let (alg, tenant) = {
            let key = &s.it.keys[&self.kid];
            (key.alg, key.tenant.clone())
        };
        let receipt = s.receipt(answer, seq, self.op_id.is_some())?;
        let came = &answer.json;
        let mut expected = json!({ "kid": format!("{}#v{version}", self.kid), "alg": alg.name, "receipt": receipt });
        match self.single {
            true => expected["sigs"] = came["sigs"].clone(),
            false => expected["results"] = came["results"].clone(),
        }
        let kept = expected.clone();
        if self.attest {
            expected["att"] = came["att"].clone();
            attesting::general(s, answer, &came["att"])?;
        }
        answer.done(200, &expected, &[])?;
        let public = reading::public_of(s, &self.kid, version).await?;
        self.check(s, answer, alg, version, &public)?;
        if let Some(id) = self.op_id {
            s.it.op_ids.finish(Kept {
                tenant,
                id,
                path: SIGN,
                body: self.body.into(),
                came_ms: (answer.began_ms, answer.ended_ms),
                answer: kept,
                kid: self.kid,
                attest: self.attest,
                opens: None,
            });
        }
        Ok(())
    }

    /// Of a long batch the first, the last and one in between.
    fn check(
        &self,
        s: &mut Session<'_>,
        answer: &Answer,
        alg: Alg,
        version: u32,
        public: &[u8],
    ) -> Verdict {
        let came = &answer.json;
        let results: Vec<Value> = match self.single {
            true => vec![came["sigs"].clone()],
            false => {
                let results = came["results"].as_array().cloned().unwrap_or_default();
                let bare = |result: &Value| result.as_object().is_some_and(|r| r.len() == 1);
                answer.must(results.iter().all(bare), "results that are sigs alone")?;
                results
                    .iter()
                    .map(|result| result["sigs"].clone())
                    .collect()
            }
        };
        let count = self.inputs.len();
        answer.must(results.len() == count, format_args!("{count} results"))?;
        let chosen: Vec<usize> = match count {
            0..6 => (0..count).collect(),
            _ => vec![0, s.pick(1, count as u64 - 2) as usize, count - 1],
        };
        for at in chosen {
            let (message, sigs) = (&self.inputs[at].message, &results[at]);
            let good = alg.signed(public, message, sigs);
            answer.must(good, format_args!("signatures of message {at}"))?;
            s.it.remember_signed(Signed {
                kid: self.kid.clone(),
                version,
                message: message.clone(),
                sigs: sigs.clone(),
            });
        }
        Ok(())
    }
}
