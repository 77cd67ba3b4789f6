//! Wrapping, unwrapping and data keys, with contexts right and wrong, and at their longest.
//!
//! A blob opens under its version and its context to what went in, and under nothing else. Always: a try that the key
//! refuses is told in the log as failed, and costs a number of its version if it was to seal.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as B64};
use serde_json::{Value, json};

use super::{
    Session, binary,
    op_ids::{Begin, Kept},
    reference::{Using, Wrapped},
    reference_to,
    refusal::{Refusal, refusal},
    sealing::{self, MAX_CONTEXT, MAX_PLAIN},
    signing::draw_op_id,
    wire::{Answer, Ask, Verdict},
};
use crate::kms::plain_log::sha256;

pub const WRAP: &str = "/v1/kms/wrap";
pub const DATA_KEY: &str = "/v1/kms/data-key";

pub async fn wrap(s: &mut Session<'_>) -> Verdict {
    let kid = s.draw_key_to(false);
    let version = s.draw_version(&kid);
    let length = match s.pick(0, 79) {
        0 => MAX_PLAIN,
        1 => MAX_PLAIN + 1,
        _ => s.one_of(&[0, 1, 16, 32, 100]),
    };
    let plain = s.bytes(length);
    let context = draw_context(s);
    let asked = Asked::draw(s, kid, version, Some(plain), context);
    asked.carry_out(s).await.map(|_| ())
}

pub async fn data_key(s: &mut Session<'_>) -> Verdict {
    let kid = s.draw_key_to(false);
    let version = s.draw_version(&kid);
    let context = draw_context(s);
    let asked = Asked::draw(s, kid, version, None, context);
    asked.carry_out(s).await.map(|_| ())
}

fn draw_context(s: &mut Session<'_>) -> Option<Vec<u8>> {
    let length = match s.pick(0, 39) {
        0 => MAX_CONTEXT,
        1 => MAX_CONTEXT + 1,
        2..15 => return None,
        15 => 0,
        _ => s.one_of(&[1, 8, 40]),
    };
    Some(s.bytes(length))
}

/// To wrap these bytes, or fresh ones.
pub struct Asked {
    kid: String,
    version: Option<u32>,
    plain: Option<Vec<u8>>,
    context: Vec<u8>,
    op_id: Option<String>,
    body: String,
}

impl Asked {
    fn draw(
        s: &mut Session<'_>,
        kid: String,
        version: Option<u32>,
        plain: Option<Vec<u8>>,
        context: Option<Vec<u8>>,
    ) -> Asked {
        let mut body = json!({ "kid": reference_to(&kid, version) });
        if let Some(plain) = &plain {
            body["plaintext"] = json!(B64.encode(plain));
        }
        if let Some(context) = &context {
            body["context"] = json!(B64.encode(context));
        }
        let op_id = draw_op_id(s, &mut body);
        Asked {
            kid,
            version,
            plain,
            context: context.unwrap_or_default(),
            op_id,
            body: body.to_string(),
        }
    }

    pub fn plainly(kid: &str, plain: &[u8], context: &[u8]) -> Asked {
        let body =
            json!({ "kid": kid, "plaintext": B64.encode(plain), "context": B64.encode(context) });
        Asked {
            kid: kid.to_owned(),
            version: None,
            plain: Some(plain.to_vec()),
            context: context.to_vec(),
            op_id: None,
            body: body.to_string(),
        }
    }

    fn action(&self) -> &'static str {
        match self.plain {
            Some(_) => "wrap",
            None => "data_key",
        }
    }

    /// `None` if it is refused, as it must be.
    pub async fn carry_out(self, s: &mut Session<'_>) -> Verdict<Option<Wrapped>> {
        let now = s.wire.now_ms();
        let Some(plan) = self.plan(s, now) else {
            return Ok(None);
        };
        let long =
            self.plain.as_ref().map_or(0, Vec::len) > MAX_PLAIN || self.context.len() > MAX_CONTEXT;
        let path = match self.plain {
            Some(_) => WRAP,
            None => DATA_KEY,
        };
        let ask = Ask::raw("POST", path, self.body.clone());
        let answer = s.send(ask, plan.is_ok() && !long).await?;
        let version = match plan {
            Err(refused) => {
                s.refuse(&answer, Some(self.action()), &refused)?;
                return Ok(None);
            }
            Ok(version) => version,
        };
        let (nonce, mark) = s.it.seal(&self.kid, version);
        let failed = long.then_some("too_long");
        let using = Using {
            caller: &s.caller,
            action: self.action(),
            kid: &self.kid,
            version,
            digests: vec![sha256(&[&self.context])],
            op_id: self.op_id.as_deref().map(|id| (id, self.body.as_bytes())),
            failed,
            mark,
        };
        let seq = s.it.used(&using, (answer.began_ms, answer.ended_ms));
        if let Some(code) = failed {
            s.refuse(&answer, Some(self.action()), &refusal(code))?;
            return Ok(None);
        }
        self.done(s, &answer, (path, version, seq, nonce)).map(Some)
    }

    /// The version that wraps, or why none is asked to; `None` if it is by chance a repetition.
    fn plan(&self, s: &mut Session<'_>, now: u64) -> Option<Result<u32, Refusal>> {
        let key = match s.it.find(&s.caller, &self.kid) {
            Err(refused) => return Some(Err(refused)),
            Ok(key) => key.clone(),
        };
        if let Some(id) = &self.op_id {
            match s
                .it
                .op_ids
                .begin(&key.tenant, id, self.body.as_bytes(), now)
            {
                Begin::New => {}
                Begin::Again(_) => return None,
                Begin::Conflict => return Some(Err(refusal("op_id_conflict"))),
            }
        }
        let version = key.meant(self.version);
        Some(key.may_produce("wrap", version, now).map(|()| version))
    }

    fn done(
        self,
        s: &mut Session<'_>,
        answer: &Answer,
        (path, version, seq, nonce): (&'static str, u32, u64, Option<u64>),
    ) -> Verdict<Wrapped> {
        s.it.counts.operation(self.action(), "ok");
        let receipt = s.receipt(answer, seq, self.op_id.is_some())?;
        let came = &answer.json;
        let mut expected = json!({
            "kid": format!("{}#v{version}", self.kid), "wrapped": came["wrapped"], "receipt": receipt,
        });
        let plain = match &self.plain {
            Some(plain) => plain.clone(),
            None => {
                expected["plaintext"] = came["plaintext"].clone();
                let plain = binary(&came["plaintext"]).unwrap_or_default();
                let fresh = plain.len() == 32 && s.it.wrapped.iter().all(|w| w.plain != plain);
                answer.must(fresh, "32 fresh bytes")?;
                plain
            }
        };
        let secret: &[(&str, &str)] = match self.plain {
            Some(_) => &[],
            None => &[("cache-control", "no-store")],
        };
        answer.done(200, &expected, secret)?;
        let blob = binary(&came["wrapped"]).unwrap_or_default();
        let key = &s.it.keys[&self.kid];
        let sealed = (&blob[..], &self.context[..], &plain[..]);
        sealing::check(answer, key, version, nonce, sealed)?;
        let opens = self
            .plain
            .is_none()
            .then(|| (version, self.context.clone()));
        let tenant = key.tenant.clone();
        if let Some(id) = self.op_id {
            s.it.op_ids.finish(Kept {
                tenant,
                id,
                path,
                body: self.body.into(),
                came_ms: (answer.began_ms, answer.ended_ms),
                answer: expected,
                kid: self.kid.clone(),
                attest: false,
                opens,
            });
        }
        let wrapped = Wrapped {
            kid: self.kid,
            version,
            blob,
            context: self.context,
            plain,
        };
        s.it.remember_wrapped(wrapped.clone());
        Ok(wrapped)
    }
}

pub async fn unwrap(s: &mut Session<'_>) -> Verdict {
    let Some(last) = (s.it.wrapped.len() as u64).checked_sub(1) else {
        return Ok(());
    };
    let at = s.pick(0, last) as usize;
    let mut asked = s.it.wrapped[at].clone();
    let Some(key) = s.it.keys.get(&asked.kid) else {
        return Ok(());
    };
    let longest = sealing::longest(key);
    let right = asked.clone();
    spoil(s, &mut asked, longest);
    let same = asked.blob == right.blob && asked.context == right.context;
    let opens = same && (&asked.kid, asked.version) == (&right.kid, right.version);
    open(s, &asked, opens, None).await.map(|_| ())
}

/// Wrong in one way, in every other case.
fn spoil(s: &mut Session<'_>, asked: &mut Wrapped, longest: usize) {
    match s.pick(0, 19) {
        0 => asked.context.push(7),
        1 => asked
            .context
            .truncate(asked.context.len().saturating_sub(1)),
        2 => {
            if let Some(byte) = asked.context.last_mut() {
                *byte ^= 1;
            }
        }
        3 | 4 => {
            let bit = s.pick(0, asked.blob.len() as u64 * 8 - 1) as usize;
            asked.blob[bit / 8] ^= 1 << (bit % 8);
        }
        5 => asked.blob.truncate(asked.blob.len() - 1),
        6 => asked.blob.push(0),
        7 => asked.blob.truncate(s.pick(0, 20) as usize),
        8 => asked.version = s.draw_version(&asked.kid).unwrap_or(1),
        9 => asked.kid = s.draw_key(|_| true),
        10 => asked.context = s.bytes(MAX_CONTEXT + 1),
        11 if s.one_in(6) => asked.blob.resize(longest + 1, 0),
        _ => {}
    }
}

/// Opens a blob; its plain bytes, if that is granted. An import opens its blob first.
pub async fn open(
    s: &mut Session<'_>,
    asked: &Wrapped,
    opens: bool,
    within: Option<&Answer>,
) -> Verdict<bool> {
    let now = s.wire.now_ms();
    let key = s.it.find(&s.caller, &asked.kid).cloned();
    let plan = key.and_then(|key| {
        key.may_open("wrap", asked.version, now)?;
        let long = asked.context.len() > MAX_CONTEXT || asked.blob.len() > sealing::longest(&key);
        Ok(match (long, opens) {
            (true, _) => Some("too_long"),
            (false, false) => Some("blob_invalid"),
            (false, true) => None,
        })
    });
    let action = match within {
        Some(_) => "import",
        None => "unwrap",
    };
    let name = format!("{}#v{}", asked.kid, asked.version);
    let sent;
    let answer = match within {
        Some(answer) => answer,
        None => {
            let mut body = json!({ "kid": name, "wrapped": B64.encode(&asked.blob) });
            if !asked.context.is_empty() || s.one_in(2) {
                body["context"] = json!(B64.encode(&asked.context));
            }
            let right = plan == Ok(None);
            sent = s.send(Ask::post("/v1/kms/unwrap", &body), right).await?;
            &sent
        }
    };
    let failed = match plan {
        Err(refused) => {
            s.it.counts.queued += u64::from(within.is_some());
            return s.refuse(answer, Some(action), &refused).map(|()| false);
        }
        Ok(failed) => failed,
    };
    let seq = opened(s, answer, asked, failed);
    match failed {
        Some(code) => s
            .refuse(answer, Some(action), &refusal(code))
            .map(|()| false),
        None if within.is_some() => Ok(true),
        None => {
            s.it.counts.operation("unwrap", "ok");
            let receipt = s.receipt(answer, seq, false)?;
            let expected: Value =
                json!({ "kid": name, "plaintext": B64.encode(&asked.plain), "receipt": receipt });
            answer.done(200, &expected, &[("cache-control", "no-store")])?;
            Ok(true)
        }
    }
}

/// Tells a use to open to the log.
pub fn opened(
    s: &mut Session<'_>,
    answer: &Answer,
    asked: &Wrapped,
    failed: Option<&'static str>,
) -> u64 {
    let using = Using {
        caller: &s.caller,
        action: "unwrap",
        kid: &asked.kid,
        version: asked.version,
        digests: vec![sha256(&[&asked.context])],
        op_id: None,
        failed,
        mark: None,
    };
    s.it.used(&using, (answer.began_ms, answer.ended_ms))
}
