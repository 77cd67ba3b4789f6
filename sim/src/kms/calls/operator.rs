//! An operator of ron-kms: writes its settings anew and has them read while it runs; and what shows which are in force.
//!
//! There is one operator for each node, so that settings do not cross. Each reload is told with what the file said.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    OPERATORS,
    bearer::Bearer,
    client,
    doors::{ADMIN, POLICY, RELOAD, find},
};
use crate::{
    ops::Op,
    seed::{self, SimRng},
    timer,
    trace::Outcome,
    workload::Clients,
};

/// What the file said.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Written {
    pub node: u32,
    pub began_us: u64,
    /// `rotate_after_min_ms`, which takes effect at once.
    pub limit_ms: u64,
    /// `signers` differ from what the process was started with.
    pub restart: bool,
    /// What is wrong with it, if something is.
    pub wrong: Option<String>,
    /// What the answer named, if it was read.
    pub applied: Vec<String>,
    pub needs_restart: Vec<String>,
}

/// Lines that make a file unusable, whatever else is in it.
const WRONG: &[&str] = &[
    "queue_cap = 0",
    "queue_cap = 'many'",
    "queue_capp = 9",
    "data_dir = ''",
    "[[",
    "verify.cache_ttl_ms = 0",
    "store.key_file = ''",
];

/// A time that no run lasts, so that nothing is rotated for it.
fn long_ms(rng: &mut SimRng) -> u64 {
    seed::pick(rng, 10, 23) * 3_600_000
}

pub async fn reload(clients: Clients, op: Op) {
    let bearer = Bearer::new(&clients, &op);
    let mut rng = bearer.rng();
    let limit_ms = long_ms(&mut rng);
    let restart = seed::pick(&mut rng, 0, 2) == 0;
    let wrong = (seed::pick(&mut rng, 0, 2) == 0)
        .then(|| WRONG[seed::pick(&mut rng, 0, WRONG.len() as u64 - 1) as usize]);
    let mut text = format!("rotate_after_min_ms = {limit_ms}\n");
    if restart {
        text.push_str("signers = 7\n");
    }
    text.push_str(wrong.unwrap_or_default());
    let node = clients.world().find(&op.on).expect("validated");
    clients.world().node_parts(node).settings.write(&text);
    let began_us = timer::elapsed().as_micros() as u64;
    let token = bearer.good(&[ADMIN], &mut rng);
    let door = find("POST", RELOAD);
    let (outcome, body) = bearer.bring(&token, door, "", &json!({})).await;
    let names = |field: &str| {
        let named = body[field].as_array().into_iter().flatten();
        named.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let written = Written {
        node: node.0,
        began_us,
        limit_ms,
        restart,
        wrong: wrong.map(str::to_owned),
        applied: names("applied"),
        needs_restart: names("needs_restart"),
    };
    let (event, status) = match outcome {
        Outcome::Answered(status @ 200) => ("client.settings_read", status),
        Outcome::Answered(status @ 422) => ("client.settings_refused", status),
        // The token did not do, or the process was about to end.
        Outcome::Answered(400..600) | Outcome::NotSent => return,
        _ => ("client.settings_unsure", 0),
    };
    let written = serde_json::to_string(&written).unwrap_or_default();
    clients.tell(event, u64::from(status), format_args!("{written}"));
}

/// Tells `node began_us asked_ms taken`: only a time that is not below the limit is taken.
pub async fn rotate_limit(clients: Clients, op: Op) {
    let bearer = Bearer::new(&clients, &op);
    let mut rng = bearer.rng();
    let Some(kid) = bearer.own_key(&mut rng).await else {
        return;
    };
    let asked_ms = long_ms(&mut rng);
    let token = bearer.good(&["kms:rotate"], &mut rng);
    let body = json!({ "min_version": 1, "rotate_after_ms": asked_ms });
    let began_us = timer::elapsed().as_micros() as u64;
    let (outcome, body) = bearer.bring(&token, find("PUT", POLICY), &kid, &body).await;
    let taken = match (outcome, body["code"].as_str()) {
        (Outcome::Answered(200), _) => true,
        (Outcome::Answered(422), Some("rotate_after_too_short")) => false,
        _ => return,
    };
    let node = clients.world().find(&op.on).expect("validated").0;
    let told = format_args!("{node} {began_us} {asked_ms} {taken}");
    clients.tell("client.limit_tried", u64::from(taken), told);
}

/// How long verifying goes on by what is known, from now on. Tells `node began_us`, before it asks and after: it is in
/// force before the answer is here.
pub async fn cache_ttl(clients: Clients, op: Op) {
    let node = clients.world().find(&op.on).expect("validated");
    let ttl_ms = 200 + op.key * 617 % 4000;
    let text = format!("verify.cache_ttl_ms = {ttl_ms}\n");
    clients.world().node_parts(node).settings.write(&text);
    let began_us = timer::elapsed().as_micros();
    let client = client(&clients, &op);
    let none = json!({});
    let told = format!("{} {began_us}", op.on);
    clients.tell("client.ttl_unsure", ttl_ms, format_args!("{told}"));
    let asking = client.send_as(Some(OPERATORS), "kms.reload", "POST", RELOAD, &none);
    if asking.await.0 == Outcome::Answered(200) {
        clients.tell("client.ttl_set", ttl_ms, format_args!("{told}"));
    }
}
