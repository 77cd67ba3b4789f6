//! Reading: one key, one version, lists page by page, the set of public keys, the description of the interface.
//!
//! What is shown must be all there is, in order. Always: a public key that was shown once is the same ever after.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as B64};
use ron_core::api::check::Checker;
use serde_json::{Value, json};

use super::{
    Session, binary,
    changing::KEYS,
    key::{Key, State},
    refusal::refusal,
    wire::{Ask, Verdict},
};

pub async fn show(s: &mut Session<'_>) -> Verdict {
    let kid = s.draw_key(|_| true);
    show_key(s, &kid).await
}

pub async fn show_key(s: &mut Session<'_>, kid: &str) -> Verdict {
    let plan = s.it.find(&s.caller, kid).map(Key::shown);
    let answer = s
        .send(Ask::get(format!("{KEYS}/{kid}")), plan.is_ok())
        .await?;
    match plan {
        Err(refused) => s.refuse(&answer, None, &refused),
        Ok(expected) => answer.done(200, &expected, &[]),
    }
}

pub async fn show_version(s: &mut Session<'_>) -> Verdict {
    let kid = s.draw_key(|_| true);
    let head = s.it.keys.get(&kid).map_or(1, Key::head);
    let number = match s.pick(0, 9) {
        0 => head + 1,
        1 => 0,
        _ => s.pick(1, head.into()) as u32,
    };
    show_one(s, &kid, number).await
}

/// Shows a version whole, and learns its public key if it was never seen.
pub async fn show_one(s: &mut Session<'_>, kid: &str, number: u32) -> Verdict {
    let now = s.wire.now_ms();
    let plan = s.it.find(&s.caller, kid).and_then(|key| {
        let known = key.version(number).map(|_| key.clone());
        known.ok_or_else(|| refusal("version_not_found"))
    });
    let plan = match number {
        0 => Err(refusal("invalid_path")),
        _ => plan,
    };
    let path = format!("{KEYS}/{kid}/versions/{number}");
    let answer = s.send(Ask::get(path), plan.is_ok()).await?;
    let key = match plan {
        Err(refused) => return s.refuse(&answer, None, &refused),
        Ok(key) => key,
    };
    let mut expected = key.shown_version(number);
    expected["alg"] = json!(key.alg.name);
    expected["use"] = json!(key.alg.used_to());
    if key.may_verify("sign", number, now).is_ok() {
        let raw = binary(&answer.json["public"]["raw"]).unwrap_or_default();
        let known = key
            .version(number)
            .and_then(|version| version.public.clone());
        let raw = known.unwrap_or(raw);
        let length = key.alg.public_len();
        answer.must(
            raw.len() == length,
            format_args!("{length} bytes of public key"),
        )?;
        expected["public"] = key.alg.shown(&raw);
        let known =
            s.it.keys
                .get_mut(kid)
                .and_then(|key| key.version_mut(number));
        if let Some(version) = known {
            version.public = Some(raw);
        }
    }
    answer.done(200, &expected, &[])
}

/// The public key of a version that may be shown.
pub async fn public_of(s: &mut Session<'_>, kid: &str, number: u32) -> Verdict<Vec<u8>> {
    let known = |s: &Session<'_>| s.it.keys[kid].version(number)?.public.clone();
    if let Some(public) = known(s) {
        return Ok(public);
    }
    show_one(s, kid, number).await?;
    known(s).ok_or_else(|| format!("{kid}#v{number} shows no public key"))
}

pub async fn list(s: &mut Session<'_>) -> Verdict {
    let limit = s.one_of(&[None, None, Some(1), Some(2), Some(5), Some(999), Some(1000)]);
    if s.one_in(6) {
        return list_wrong(s).await;
    }
    let after = match s.pick(0, 3) {
        0 => None,
        1 => Some(B64.encode(s.bytes(16))),
        _ => Some(s.draw_key(|_| true)),
    };
    let mut after = after;
    loop {
        let (expected, next) = page(s, limit, after.as_deref());
        let limit = limit.map(|limit| format!("limit={limit}"));
        let from = after.map(|after| format!("after={after}"));
        let query: Vec<String> = limit.into_iter().chain(from).collect();
        let answer = s
            .send(Ask::get(format!("{KEYS}?{}", query.join("&"))), true)
            .await?;
        answer.done(200, &expected, &[])?;
        match next {
            Some(next) if !s.one_in(8) => after = Some(next),
            _ => return Ok(()),
        }
    }
}

fn page(s: &Session<'_>, limit: Option<usize>, after: Option<&str>) -> (Value, Option<String>) {
    let all = s.it.visible(&s.caller);
    let rest: Vec<&Key> = all
        .into_iter()
        .filter(|key| after.is_none_or(|after| key.kid.as_str() > after))
        .collect();
    let shown = &rest[..rest.len().min(limit.unwrap_or(100))];
    let listed: Vec<Value> = shown.iter().map(|key| key.listed()).collect();
    let more = shown.len() < rest.len();
    let next = shown.last().filter(|_| more).map(|key| key.kid.clone());
    let mut page = json!({ "keys": listed });
    if let Some(next) = &next {
        page["next"] = json!(next);
    }
    (page, next)
}

async fn list_wrong(s: &mut Session<'_>) -> Verdict {
    let query = s.one_of(&[
        "limit=0",
        "limit=1001",
        "limit=-1",
        "limit=x",
        "limit=",
        "after=short",
        "after=AAAAAAAAAAAAAAAAAAAAAB",
        "before=x",
        "limit=1&page=2",
    ]);
    let answer = s.send(Ask::get(format!("{KEYS}?{query}")), false).await?;
    s.refuse(&answer, None, &refusal("invalid_query"))
}

/// Public keys of enabled versions, by key and version. Those that were not seen yet are learnt, and checked from then.
pub async fn key_set(s: &mut Session<'_>) -> Verdict {
    if s.one_in(8) {
        return openapi(s).await;
    }
    let enabled =
        s.it.visible(&s.caller)
            .into_iter()
            .filter(|key| key.alg.signs());
    let enabled = enabled.flat_map(|key| {
        let versions = key.versions.iter().zip(1u32..);
        let shown = versions.filter(|(version, _)| version.state == State::Enabled);
        shown.map(|(_, number)| (key.kid.clone(), number))
    });
    let enabled: Vec<(String, u32)> = enabled.collect();
    let mut expected = Vec::new();
    for (kid, number) in enabled {
        let public = public_of(s, &kid, number).await?;
        let key = &s.it.keys[&kid];
        expected.extend(key.alg.named_jwks(&public, &key.name(number)));
    }
    let answer = s.send(Ask::get("/v1/kms/jwks.json"), true).await?;
    let expected = json!({ "keys": expected });
    answer.is(200, &expected, "the key set")?;
    answer.has(&[("content-type", "application/jwk-set+json")])
}

async fn openapi(s: &mut Session<'_>) -> Verdict {
    let answer = s.send(Ask::get("/v1/kms/openapi.json"), true).await?;
    let document = Checker::new(answer.json.clone());
    let sound = document.sound();
    answer.must(
        sound == Ok(()),
        format_args!("a sound description: {sound:?}"),
    )?;
    let asks = document
        .operations()
        .iter()
        .all(|o| o.about["security"].is_array());
    let told = asks == s.it.settings.ingress;
    answer.must(
        told,
        "credentials asked for exactly if callers are identified",
    )?;
    answer.has(&[("content-type", "application/json")])
}
