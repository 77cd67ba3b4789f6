//! The same operation id again: with the same body the same answer, with another one a conflict.
//!
//! Whatever became of the key since; only a data key is opened anew, which its version must still allow. Always: a
//! repetition uses no key and leaves no record, but for that.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{
    Session, attesting,
    op_ids::{Begin, Kept},
    reference::Wrapped,
    refusal::refusal,
    wire::{Ask, Verdict},
    wrapping::{DATA_KEY, WRAP, opened},
};

pub async fn repeat(s: &mut Session<'_>) -> Verdict {
    let now = s.wire.now_ms();
    let own = s.it.op_ids.kept(now).iter();
    let own: Vec<Kept> = own
        .filter(|kept| s.caller.may_touch(&kept.tenant))
        .cloned()
        .collect();
    if own.is_empty() || !s.it.op_ids.is_sure(now, super::SOON_MS) {
        return Ok(());
    }
    let kept = own[s.pick(0, own.len() as u64 - 1) as usize].clone();
    match s.one_in(4) {
        true => conflict(s, &kept).await,
        false => again(s, &kept).await,
    }
}

/// The same id for something else, be it the same thing in other words.
async fn conflict(s: &mut Session<'_>, kept: &Kept) -> Verdict {
    let mut body = kept.body.to_vec();
    body.push(b' ');
    let answer = s.send(Ask::raw("POST", kept.path, body), false).await?;
    let action = action_of(kept);
    s.refuse(&answer, Some(action), &refusal("op_id_conflict"))
}

pub async fn again(s: &mut Session<'_>, kept: &Kept) -> Verdict {
    let now = s.wire.now_ms();
    let begun = s.it.op_ids.begin(&kept.tenant, &kept.id, &kept.body, now);
    let Begin::Again(kept) = begun else {
        return Ok(());
    };
    let ask = Ask::raw("POST", kept.path, Bytes::clone(&kept.body));
    let key = s.it.find(&s.caller, &kept.kid).cloned();
    let plan = key.and_then(|key| match &kept.opens {
        None => Ok(()),
        Some((version, _)) => key.may_open("wrap", *version, now),
    });
    let answer = s.send(ask, plan.is_ok()).await?;
    let action = action_of(&kept);
    if let Err(refused) = plan {
        let found = refused.code != "key_not_found";
        s.it.counts.queued += u64::from(found && kept.opens.is_some());
        return s.refuse(&answer, Some(action), &refused);
    }
    if let Some((version, context)) = kept.opens.clone() {
        let wrapped = Wrapped {
            kid: kept.kid.clone(),
            version,
            context,
            blob: Vec::new(),
            plain: Vec::new(),
        };
        opened(s, &answer, &wrapped, None);
    }
    s.it.counts.operation(action, "ok");
    let mut expected: Value = kept.answer.clone();
    if kept.attest {
        expected["att"] = answer.json["att"].clone();
        attesting::general(s, &answer, &json!(expected["att"]))?;
    }
    let secret: &[(&str, &str)] = match kept.path {
        DATA_KEY => &[("cache-control", "no-store")],
        _ => &[],
    };
    answer.done(200, &expected, secret)
}

fn action_of(kept: &Kept) -> &'static str {
    match kept.path {
        WRAP => "wrap",
        DATA_KEY => "data_key",
        _ => "sign",
    }
}
