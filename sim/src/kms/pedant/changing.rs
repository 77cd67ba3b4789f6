//! Changes of keys: made, rotated, switched, destroyed, their policy set; each answered by the key as it then is.
//!
//! When a change happened is the service's to say, within its request; all else follows. Always: a change that is
//! refused leaves no record and changes nothing.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as B64};
use serde_json::{Value, json};

use super::{
    Session,
    algorithm::{ALGS, CHEAP},
    key::{Change, DEFAULT_WAIT_MS, Key, MAX_WAIT_MS, MIN_WAIT_MS, Version, check_rotation},
    refusal::{Refusal, refusal},
    wire::{Answer, Ask, Verdict},
};

pub const KEYS: &str = "/v1/kms/keys";

pub async fn create(s: &mut Session<'_>) -> Verdict {
    let alg = match s.one_in(14) {
        true => ALGS[s.pick(CHEAP as u64, ALGS.len() as u64 - 1) as usize],
        false => ALGS[s.pick(0, CHEAP as u64 - 1) as usize],
    };
    let length = s.one_of(&[1, 7, 30, 128]);
    let purpose = s.label(length);
    let mut body = json!({ "purpose": purpose, "alg": alg.name });
    let named = match s.pick(0, 5) {
        0..3 => s.caller.tenant.clone().or(Some("acme".to_owned())),
        3 => Some("zeta".to_owned()),
        _ => None,
    };
    if let Some(tenant) = &named {
        body["tenant"] = json!(tenant);
    }
    let (min_version, rotate_after_ms) = draw_first_policy(s, &mut body);
    let plan = may_create(s, named.as_deref(), min_version, rotate_after_ms);
    let answer = s.send(Ask::post(KEYS, &body), plan.is_ok()).await?;
    match plan {
        Err((stage, refused)) => {
            s.it.counts.queued += u64::from(stage == Stage::Queued);
            let action = (stage != Stage::Door).then_some("create");
            return s.refuse(&answer, action, &refused);
        }
        Ok(()) => answer.must(answer.status == 201, "201 with a new key")?,
    }
    let kid = answer.json["kid"].as_str().unwrap_or_default().to_owned();
    let is_new = kid.len() == 22
        && B64.decode(&kid).is_ok_and(|bytes| bytes.len() == 16)
        && !s.it.keys.contains_key(&kid);
    answer.must(is_new, "a kid of its own")?;
    let created_ms = answer.at(&answer.json["versions"][0]["created_ms"], "created_ms")?;
    let own = s.caller.tenant.clone();
    let key = Key {
        kid: kid.clone(),
        tenant: named.or(own).unwrap_or_else(|| "default".to_owned()),
        purpose,
        alg,
        min_version: 1,
        rotate_after_ms,
        versions: vec![Version::new(created_ms)],
    };
    s.it.keys.insert(kid.clone(), key);
    let told = vec![(1, json!({ "created": { "alg": alg.name } }))];
    let place = format!("/v1/kms/keys/{kid}");
    finish(
        s,
        &answer,
        ("create", created_ms),
        &kid,
        told,
        (201, &[("location", &place)]),
    )
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Door,
    Checked,
    Queued,
}

fn may_create(
    s: &Session<'_>,
    tenant: Option<&str>,
    min_version: u32,
    rotate_after_ms: Option<u64>,
) -> Result<(), (Stage, Refusal)> {
    let settings = &s.it.settings;
    if let Some(place) = out_of_bounds(min_version, rotate_after_ms) {
        let refused = Refusal::at("invalid_field", &format!("policy.{place}"));
        return Err((Stage::Door, refused));
    }
    if tenant.is_some_and(|tenant| !s.caller.may_touch(tenant)) {
        return Err((Stage::Door, refusal("tenant_forbidden")));
    }
    check_rotation(rotate_after_ms, settings.rotate_min_ms).map_err(|r| (Stage::Checked, r))?;
    if s.it.keys.len() as u64 >= settings.max_keys {
        return Err((Stage::Checked, refusal("too_many_keys")));
    }
    match min_version {
        1 => Ok(()),
        _ => Err((Stage::Queued, refusal("min_version_out_of_range"))),
    }
}

/// What no policy may say, whatever the key.
fn out_of_bounds(min_version: u32, rotate_after_ms: Option<u64>) -> Option<&'static str> {
    match (min_version, rotate_after_ms) {
        (0, _) => Some("min_version"),
        (_, Some(0)) => Some("rotate_after_ms"),
        _ => None,
    }
}

fn draw_first_policy(s: &mut Session<'_>, body: &mut Value) -> (u32, Option<u64>) {
    match s.pick(0, 9) {
        0..5 => return (1, None),
        5 => {
            body["policy"] = json!({});
            return (1, None);
        }
        _ => {}
    }
    let after = draw_rotation(s);
    let min_version = s.one_of(&[None, Some(1), Some(1), Some(0), Some(2)]);
    body["policy"] = json!({});
    if let Some(min_version) = min_version {
        body["policy"]["min_version"] = json!(min_version);
    }
    if after.is_some() || s.one_in(2) {
        body["policy"]["rotate_after_ms"] = json!(after);
    }
    (min_version.unwrap_or(1), after)
}

fn draw_rotation(s: &mut Session<'_>) -> Option<u64> {
    let least = s.it.settings.rotate_min_ms;
    match s.pick(0, 15) {
        0..9 => None,
        9 => Some(0),
        10 => Some(least - 1),
        11 | 12 => Some(least),
        13 => Some(1),
        _ => Some(least + s.pick(1, 100_000_000)),
    }
}

pub async fn rotate(s: &mut Session<'_>) -> Verdict {
    let kid = s.draw_key(|key| !key.alg.dear || key.head() < 3);
    let head = s.it.keys.get(&kid).map_or(1, Key::head);
    let path = format!("{KEYS}/{kid}/rotate");
    let (ask, from) = match s.pick(0, 6) {
        0 => (Ask::raw("POST", path, "").bare(), None),
        1 | 2 => (Ask::post(path, &json!({})), None),
        3 => (Ask::post(path, &json!({ "from": null })), None),
        4 | 5 => (Ask::post(path, &json!({ "from": head })), Some(head)),
        _ => {
            let other = s.one_of(&[head + 1, head + 7, head.saturating_sub(1).max(1)]);
            (Ask::post(path, &json!({ "from": other })), Some(other))
        }
    };
    let plan = s.it.find(&s.caller, &kid).map(|_| match from {
        Some(from) if from != head => Err(refusal("head_moved")),
        _ => Ok(Change::Rotated),
    });
    carry_out(s, "rotate", ask, &kid, plan).await
}

pub async fn switch(s: &mut Session<'_>) -> Verdict {
    let kid = s.draw_key(|_| true);
    let head = s.it.keys.get(&kid).map_or(1, Key::head);
    let number = match s.pick(0, 11) {
        0 => 0,
        1 => head + 1,
        _ => s.pick(1, head.into()) as u32,
    };
    let enable = s.one_in(2);
    let (action, change) = match enable {
        true => ("enable", Change::Enabled(number)),
        false => ("disable", Change::Disabled(number)),
    };
    let path = format!("{KEYS}/{kid}/versions/{number}/{action}");
    let ask = match s.one_in(2) {
        true => Ask::raw("POST", path, "").bare(),
        false => Ask::post(path, &json!({})),
    };
    // No key has a version 0: that is said without looking at any.
    if number == 0 {
        return turned_away(s, ask, refusal("invalid_path")).await;
    }
    let now = s.wire.now_ms();
    let found = s.it.find(&s.caller, &kid);
    let plan = found.map(|key| key.alive(number, now).map(|_| change));
    carry_out(s, action, ask, &kid, plan).await
}

pub async fn destroy(s: &mut Session<'_>) -> Verdict {
    let kid = s.draw_key(|_| true);
    let path = format!("{KEYS}/{kid}/destroy");
    let head = s.it.keys.get(&kid).map_or(1, Key::head);
    let version = match s.pick(0, 7) {
        0 | 1 => None,
        2..5 => Some(head),
        _ => s.draw_version(&kid).or(Some(1)),
    };
    let waits = [
        MIN_WAIT_MS,
        MIN_WAIT_MS,
        MIN_WAIT_MS + 1,
        MIN_WAIT_MS - 1,
        MAX_WAIT_MS,
        MAX_WAIT_MS + 1,
    ];
    let wait_ms = match s.one_in(4) {
        true => None,
        false => Some(s.one_of(&waits)),
    };
    let mut body = json!({});
    if let Some(version) = version {
        body["version"] = json!(version);
    }
    if let Some(wait_ms) = wait_ms {
        body["wait_ms"] = json!(wait_ms);
    }
    let ask = match body == json!({}) {
        true => Ask::raw("POST", path, "").bare(),
        false => Ask::post(path, &body),
    };
    let wait = wait_ms.unwrap_or(DEFAULT_WAIT_MS);
    if !(MIN_WAIT_MS..=MAX_WAIT_MS).contains(&wait) {
        return turned_away(s, ask, Refusal::at("invalid_field", "wait_ms")).await;
    }
    let now = s.wire.now_ms();
    let found = s.it.find(&s.caller, &kid);
    let plan = found.map(|key| key.destroy(version, wait, now));
    carry_out(s, "destroy", ask, &kid, plan).await
}

pub async fn cancel(s: &mut Session<'_>) -> Verdict {
    let kid = s.draw_key(|key| key.destructions().next().is_some());
    let version = match s.one_in(3) {
        true => None,
        false => s.draw_version(&kid).or(Some(1)),
    };
    cancel_one(s, &kid, version).await
}

pub async fn cancel_one(s: &mut Session<'_>, kid: &str, version: Option<u32>) -> Verdict {
    let path = format!("{KEYS}/{kid}/destroy/cancel");
    let ask = match version {
        None if s.one_in(2) => Ask::raw("POST", path, "").bare(),
        version => Ask::post(path, &json!({ "version": version })),
    };
    let now = s.wire.now_ms();
    let plan =
        s.it.find(&s.caller, kid)
            .map(|key| key.cancel(version, now));
    carry_out(s, "cancel_destroy", ask, kid, plan).await
}

pub async fn policy(s: &mut Session<'_>) -> Verdict {
    let kid = s.draw_key(|_| true);
    let key = s.it.keys.get(&kid);
    let (lowest, head) = key.map_or((1, 1), |key| (key.min_version, key.head()));
    let min_version = s.one_of(&[lowest, head, head, head, lowest - 1, head + 1]);
    let after = draw_rotation(s);
    let mut body = json!({ "min_version": min_version });
    if after.is_some() || s.one_in(2) {
        body["rotate_after_ms"] = json!(after);
    }
    let ask = Ask::raw("PUT", format!("{KEYS}/{kid}/policy"), body.to_string());
    if let Some(place) = out_of_bounds(min_version, after) {
        return turned_away(s, ask, Refusal::at("invalid_field", place)).await;
    }
    let least = s.it.settings.rotate_min_ms;
    let plan = s.it.find(&s.caller, &kid).and_then(|key| {
        check_rotation(after, least)?;
        Ok(key.policy(min_version, after, least))
    });
    carry_out(s, "policy", ask, &kid, plan).await
}

/// No key is rotated by its policy any more, so that there is rest.
pub async fn retire(s: &mut Session<'_>) -> Verdict {
    let rotating =
        s.it.keys
            .values()
            .filter(|key| key.rotate_after_ms.is_some());
    let rotating: Vec<Key> = rotating.cloned().collect();
    for key in rotating {
        super::travelling::pass(s).await?;
        s.caller.tenant = s.caller.tenant.as_ref().map(|_| key.tenant.clone());
        let body = json!({ "min_version": key.min_version }).to_string();
        let ask = Ask::raw("PUT", format!("{KEYS}/{}/policy", key.kid), body);
        let change = Change::Policy(key.min_version, None);
        carry_out(s, "policy", ask, &key.kid, Ok(Ok(change))).await?;
    }
    Ok(())
}

/// Refused before any key is looked at.
async fn turned_away(s: &mut Session<'_>, ask: Ask, refused: Refusal) -> Verdict {
    let answer = s.send(ask, false).await?;
    s.refuse(&answer, None, &refused)
}

/// The outer refusal is said before the operation takes a place in the queue, the inner one behind it.
pub async fn carry_out(
    s: &mut Session<'_>,
    action: &'static str,
    ask: Ask,
    kid: &str,
    plan: Result<Result<Change, Refusal>, Refusal>,
) -> Verdict {
    let right = matches!(plan, Ok(Ok(_)));
    let answer = s.send(ask, right).await?;
    s.it.counts.queued += u64::from(plan.is_ok());
    match plan.and_then(|decided| decided) {
        Err(refused) => s.refuse(&answer, Some(action), &refused),
        Ok(change) => changed(s, &answer, action, kid, change),
    }
}

/// The key as the change left it.
pub fn changed(
    s: &mut Session<'_>,
    answer: &Answer,
    action: &'static str,
    kid: &str,
    change: Change,
) -> Verdict {
    answer.must(answer.status == 200, format_args!("200, {change:?}"))?;
    let versions = &answer.json["versions"];
    let now = match &change {
        Change::Rotated | Change::Imported(_) => {
            let last = versions.as_array().and_then(|all| all.last());
            answer.at(&last.unwrap_or(&Value::Null)["created_ms"], "created_ms")?
        }
        Change::Scheduled(all, wait_ms) => {
            let at = &versions[all[0] as usize - 1]["at_ms"];
            let now = at.as_u64().unwrap_or(0).saturating_sub(*wait_ms);
            answer.at(&json!(now), "at_ms less the wait")?
        }
        _ => answer.began_ms,
    };
    let key = s.it.keys.get_mut(kid).expect("a key that changes is known");
    let told = key.change(change, now);
    finish(s, answer, (action, now), kid, told, (200, &[]))
}

fn finish(
    s: &mut Session<'_>,
    answer: &Answer,
    (action, decided_ms): (&'static str, u64),
    kid: &str,
    told: Vec<(u32, Value)>,
    (status, headers): (u16, &[(&str, &str)]),
) -> Verdict {
    s.it.counts.operation(action, "ok");
    s.it.counts.queued += u64::from(action == "create");
    s.it.counts.told += told.len() as u64;
    let key = &s.it.keys[kid];
    let mut expected = key.shown();
    // First it is decided, then it is told.
    let at_ms = (decided_ms, answer.ended_ms);
    let seq = s.it.log.changed(key, &s.caller.actor, told, at_ms);
    expected["receipt"] = s.receipt(answer, seq, true)?;
    answer.done(status, &expected, headers)
}
