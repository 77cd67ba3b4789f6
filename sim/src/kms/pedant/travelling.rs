//! Time: waits, clocks that are moved to the very moment, and processes that end in order and begin anew.
//!
//! What time makes due is done by the service within one round of its keeper, and no later. Always: nothing is asked
//! while it is open whether that was done, but what has the same answer either way.

use std::time::Duration;

use super::{
    Session, changing,
    key::{DAY_MS, State, Version},
    log::GATHERED_MS,
    op_ids::Kept,
    reading, repeating, signing, verifying,
    wire::{Ask, Verdict},
};
use crate::{timer, trace::What, world::Status};

/// What one round of housekeeping takes, besides its pause.
const ROUND_MS: u64 = 60;
const PER_KEY_MS: u64 = 20;
/// Before a moment that is to be met exactly, all else that is due is done with.
const BEFORE_MS: u64 = 4_000;

/// Nothing is due, and nothing will be soon.
pub async fn pass(s: &mut Session<'_>) -> Verdict {
    past(s, super::SOON_MS).await
}

/// The same for so long.
pub async fn past(s: &mut Session<'_>, ahead_ms: u64) -> Verdict {
    loop {
        let now = s.wire.now_ms();
        match s.it.next_due() {
            Some(due) if due <= now => settle(s).await?,
            Some(due) if due <= now + ahead_ms => s.wire.wait_ms(due - now).await,
            _ => return Ok(()),
        }
    }
}

/// Waits one round, and looks at what was due: it is done, and nothing else is.
async fn settle(s: &mut Session<'_>) -> Verdict {
    let mut begun;
    loop {
        begun = s.wire.now_ms();
        let keys = s.it.due_keys(begun).len() as u64;
        let round = s.it.settings.refresh_ms + ROUND_MS + keys * PER_KEY_MS;
        s.wire.wait_ms(round).await;
        // What became due meanwhile may be done or not, be it of a key that has waited for something else.
        let now = s.wire.now_ms();
        if !s.it.dues().any(|due| due > begun && due <= now) {
            break;
        }
    }
    for kid in s.it.due_keys(begun) {
        settle_key(s, &kid, begun).await?;
    }
    Ok(())
}

/// As its tenant sees it.
async fn settle_key(s: &mut Session<'_>, kid: &str, by_ms: u64) -> Verdict {
    let asking = s.caller.tenant.clone();
    s.caller.tenant = asking.as_ref().map(|_| s.it.keys[kid].tenant.clone());
    let answer = s
        .send(Ask::get(format!("{}/{kid}", changing::KEYS)), true)
        .await?;
    s.caller.tenant = asking;
    let versions = &answer.json["versions"];
    let key = &s.it.keys[kid];
    let rotates = key.rotation_due().filter(|at| *at <= by_ms);
    let gone: Vec<(u32, u64)> = key.destructions().filter(|(_, at)| *at <= by_ms).collect();
    let within = |came: &serde_json::Value, due: u64, what: &str| {
        let ms = came
            .as_u64()
            .filter(|ms| (due..=answer.ended_ms).contains(ms));
        match ms {
            Some(ms) => Ok(ms),
            None => answer.differs(format_args!("{what} from {due} on, by housekeeping"), came),
        }
    };
    let mut told = Vec::new();
    let mut key = key.clone();
    for (number, due) in &gone {
        let at_ms = within(&versions[*number as usize - 1]["at_ms"], *due, "at_ms")?;
        if let Some(version) = key.version_mut(*number) {
            version.state = State::Destroyed { at_ms };
        }
        told.push((*number, serde_json::json!("destroyed")));
    }
    if let Some(due) = rotates {
        let head = key.head();
        let created_ms = within(&versions[head as usize]["created_ms"], due, "created_ms")?;
        key.versions.push(Version::new(created_ms));
        told.push((head + 1, serde_json::json!({ "rotated": { "from": head } })));
    }
    answer.done(200, &key.shown(), &[])?;
    s.it.counts.told += told.len() as u64;
    let first = gone.iter().map(|(_, due)| *due).chain(rotates).min();
    let window = (first.unwrap_or(by_ms), answer.ended_ms);
    s.it.log.kept_house(&key, told, window, by_ms);
    s.it.keys.insert(kid.to_owned(), key);
    Ok(())
}

pub async fn wait(s: &mut Session<'_>) -> Verdict {
    let most = match s.one_in(6) {
        true => 3_000,
        false => 60,
    };
    let free = s.it.next_due().map_or(most, |due| {
        let left = due.saturating_sub(s.wire.now_ms());
        left.saturating_sub(super::SOON_MS).clamp(1, most)
    });
    let ms = s.pick(1, free);
    s.wire.wait_ms(ms).await;
    Ok(())
}

/// What comes down on a session rarely: days, moments, restarts.
pub async fn strike(s: &mut Session<'_>) -> Verdict {
    if s.restarts && s.one_in(2) {
        return restart(s).await;
    }
    if !s.travels {
        return wait(s).await;
    }
    match s.pick(0, 3) {
        0 => {
            let by = s.one_of(&[1_000, 59_000, 3_600_000, DAY_MS, 2 * DAY_MS]);
            leap(s, by).await;
            pass(s).await
        }
        1 => nearly_due(s).await,
        2 => destroyed_to_the_moment(s).await,
        _ => forgotten_to_the_moment(s).await,
    }
}

/// Moves the clock, once what is still to be written has its time.
async fn leap(s: &Session<'_>, by_ms: u64) {
    s.wire.wait_ms(GATHERED_MS).await;
    jump(s, by_ms);
}

fn jump(s: &Session<'_>, by_ms: u64) {
    let text = format!("clock.jump +{by_ms} ms, by the pedant");
    let world = s.wire.world();
    world
        .recorder()
        .record(Some(s.wire.node), What::Fault { text });
    world.node_parts(s.wire.node).clock.jump_wall(by_ms as i64);
}

/// So that a millisecond of the node's clock has just begun.
async fn align(s: &Session<'_>) {
    let part = s.wire.shown().subsec_nanos() % 1_000_000;
    timer::sleep(Duration::from_nanos(u64::from(1_000_000 - part))).await;
}

/// Moves the clock to this moment; false if more is due about then than is expected.
async fn arrive(s: &mut Session<'_>, at_ms: u64, expected: usize) -> Verdict<bool> {
    let now = s.wire.now_ms();
    if at_ms < now + BEFORE_MS {
        return Ok(false);
    }
    leap(s, at_ms - BEFORE_MS - now).await;
    while s.it.next_due().is_some_and(|due| due <= s.wire.now_ms()) {
        settle(s).await?;
    }
    align(s).await;
    let now = s.wire.now_ms();
    let near = s.it.dues().filter(|due| *due <= at_ms + super::SOON_MS);
    if at_ms < now || near.count() != expected {
        return Ok(false);
    }
    jump(s, at_ms - now);
    Ok(true)
}

/// Shortly before something is due, for longer than a round: nothing is done early.
async fn nearly_due(s: &mut Session<'_>) -> Verdict {
    let (now, round) = (s.wire.now_ms(), s.it.settings.refresh_ms + ROUND_MS);
    let before = round + 1_000;
    let Some(due) = s.it.next_due().filter(|due| *due > now + before) else {
        return Ok(());
    };
    leap(s, due - before - now).await;
    s.wire.wait_ms(round).await;
    let kids: Vec<String> = s.it.due_keys(due).into_iter().take(3).collect();
    for kid in kids {
        s.caller.tenant = s
            .caller
            .tenant
            .as_ref()
            .map(|_| s.it.keys[&kid].tenant.clone());
        reading::show_key(s, &kid).await?;
    }
    pass(s).await
}

/// One millisecond before its destruction a version can be called back; at the moment it is gone.
async fn destroyed_to_the_moment(s: &mut Session<'_>) -> Verdict {
    let scheduled = s.it.scheduled();
    let Some(last) = (scheduled.len() as u64).checked_sub(1) else {
        return Ok(());
    };
    let (kid, version, at_ms) = scheduled[s.pick(0, last) as usize].clone();
    let tenant = s.it.keys[&kid].tenant.clone();
    s.caller.tenant = s.caller.tenant.as_ref().map(|_| tenant);
    if !arrive(s, at_ms - 1, 1).await? {
        return pass(s).await;
    }
    match s.one_in(3) {
        true => changing::cancel_one(s, &kid, Some(version)).await?,
        false => probe(s, &kid, version).await?,
    }
    if s.it.state(&kid, version) == Some(State::Disabled) {
        return Ok(());
    }
    align(s).await;
    let now = s.wire.now_ms();
    jump(s, at_ms.saturating_sub(now));
    match s.one_in(3) {
        true => changing::cancel_one(s, &kid, Some(version)).await?,
        false => probe(s, &kid, version).await?,
    }
    pass(s).await
}

/// Something that is refused without a record, whether the version is to be destroyed or is.
async fn probe(s: &mut Session<'_>, kid: &str, version: u32) -> Verdict {
    let mut signed = s.it.signed.iter();
    let signed = signed.rfind(|one| one.kid == kid && one.version == version);
    let mut wrapped = s.it.wrapped.iter();
    let wrapped = wrapped.rfind(|one| one.kid == kid && one.version == version);
    match (signed.cloned(), wrapped.cloned()) {
        (Some(signed), _) if s.one_in(2) => verifying::verify_named(s, &signed).await,
        (_, Some(wrapped)) if s.one_in(2) => {
            let opened = super::wrapping::open(s, &wrapped, true, None).await;
            opened.map(|_| ())
        }
        _ => signing::sign_with(s, kid, version).await,
    }
}

/// For a day a result is there to be asked for again, and not longer.
async fn forgotten_to_the_moment(s: &mut Session<'_>) -> Verdict {
    let now = s.wire.now_ms();
    if !s.it.op_ids.is_sure(now, 0) {
        return Ok(());
    }
    let kept: Vec<Kept> = s.it.op_ids.kept(now).to_vec();
    let Some(last) = (kept.len() as u64).checked_sub(1) else {
        return Ok(());
    };
    let kept = kept[s.pick(0, last) as usize].clone();
    s.caller.tenant = s.caller.tenant.as_ref().map(|_| kept.tenant.clone());
    if !arrive(s, kept.came_ms.0 + DAY_MS - 1, 0).await? {
        return pass(s).await;
    }
    repeating::again(s, &kept).await?;
    align(s).await;
    let (now, gone) = (s.wire.now_ms(), kept.came_ms.1 + DAY_MS);
    if now <= gone {
        jump(s, gone - now);
    }
    // Others may be about to go, too.
    match s.it.op_ids.is_sure(s.wire.now_ms(), 20) {
        true => signing::sign_under(s, &kept).await,
        false => pass(s).await,
    }
}

/// The node ends in order and begins anew: all is as it was.
async fn restart(s: &mut Session<'_>) -> Verdict {
    let now = s.wire.now_ms();
    let quiet = s.it.next_due().is_none_or(|due| due > now + BEFORE_MS);
    if !quiet || !s.it.op_ids.is_sure(now, BEFORE_MS) {
        return Ok(());
    }
    let (world, node) = (s.wire.world().clone(), s.wire.node);
    let text = "node.shutdown, by the pedant".to_owned();
    world.recorder().record(Some(node), What::Fault { text });
    world.ask_shutdown(node);
    while world.status(node) == Status::Up {
        s.wire.wait_ms(10).await;
    }
    if s.travels && s.one_in(3) {
        let by = s.one_of(&[1_000, 3_600_000, DAY_MS + 1]);
        jump(s, by);
    }
    world.start(node);
    s.wire.ready().await?;
    s.it.restarted(s.wire.now_ms());
    pass(s).await
}
