//! What clients ask of ron-kms with tokens: good ones, wrong ones, the same one again, too few scopes, another tenant's.

use serde_json::{Value, json};

use super::{
    SLOTS,
    bearer::Bearer,
    doors::{ADMIN, DOORS, SCOPES, SIGN},
};
use crate::{kms::token::WRONG, ops::Op, seed, trace::Outcome, workload::Clients};

/// A key that nobody has.
const NO_KEY: &str = "none";
/// For how long a token is used after its end.
const AFTERWARDS_S: u64 = 60;

pub async fn good(clients: Clients, op: Op) {
    let bearer = Bearer::new(&clients, &op);
    let mut rng = bearer.rng();
    let Some(kid) = bearer.own_key(&mut rng).await else {
        return;
    };
    let reads = seed::pick(&mut rng, 0, 3) == 0;
    if !reads {
        let token = bearer.good(SCOPES, &mut rng);
        return bearer.sign(&token, &kid).await;
    }
    let open: Vec<usize> = (0..DOORS.len())
        .filter(|n| DOORS[*n].method == "GET")
        .collect();
    let door = open[seed::pick(&mut rng, 0, open.len() as u64 - 1) as usize];
    let token = bearer.good(DOORS[door].scopes, &mut rng);
    let (_, body) = bearer.bring(&token, door, &kid, &Value::Null).await;
    bearer.check_listed(&body);
}

pub async fn wrong(clients: Clients, op: Op) {
    let bearer = Bearer::new(&clients, &op);
    let mut rng = bearer.rng();
    let kind = WRONG[seed::pick(&mut rng, 0, WRONG.len() as u64 - 1) as usize];
    let token = bearer.occasion(|now| now.wrong(kind, SCOPES, &mut bearer.rng()));
    let known = bearer.known_key();
    match known.filter(|_| seed::pick(&mut rng, 0, 1) == 0) {
        Some(kid) => bearer.sign(&token, &kid).await,
        None => {
            let door = seed::pick(&mut rng, 0, DOORS.len() as u64 - 1) as usize;
            bearer.bring(&token, door, NO_KEY, &json!({})).await;
        }
    }
}

/// Kept beyond its end, so that whoever remembers it must look at the time again.
pub async fn again(clients: Clients, op: Op) {
    let bearer = Bearer::new(&clients, &op);
    let mut rng = bearer.rng();
    let Some(kid) = bearer.own_key(&mut rng).await else {
        return;
    };
    let wallet = &bearer.client.known().tokens;
    let place = (op.on.clone(), op.arg);
    let kept = wallet.kept.lock().unwrap().get(&place).cloned();
    let end = bearer.wall_ms() / 1000 - bearer.rules.leeway_s;
    let kept = kept.filter(|token| token.facts.exp.unwrap_or(0) + AFTERWARDS_S > end);
    let token = kept.unwrap_or_else(|| {
        let longest = [40, 400, 4000][seed::pick(&mut rng, 0, 2) as usize];
        let lasts = seed::pick(&mut rng, 5, longest);
        let token = bearer.occasion(|now| now.good(SCOPES, lasts, &mut rng));
        wallet.kept.lock().unwrap().insert(place, token.clone());
        token
    });
    bearer.sign(&token, &kid).await;
}

pub async fn scopes(clients: Clients, op: Op) {
    let bearer = Bearer::new(&clients, &op);
    let mut rng = bearer.rng();
    let door = seed::pick(&mut rng, 0, DOORS.len() as u64 - 1) as usize;
    let needed = DOORS[door].scopes;
    let missing = needed.contains(&ADMIN) || seed::pick(&mut rng, 0, 2) > 0;
    let mut scopes = needed.to_vec();
    if missing && !needed.is_empty() {
        let without = needed[seed::pick(&mut rng, 0, needed.len() as u64 - 1) as usize];
        scopes = SCOPES.iter().copied().filter(|s| *s != without).collect();
    }
    let mut token = bearer.good(&scopes, &mut rng);
    if seed::pick(&mut rng, 0, 4) == 0 {
        token = bearer.occasion(|now| now.of_nobody(&scopes, &mut rng));
    }
    bearer.bring(&token, door, NO_KEY, &json!({})).await;
}

pub async fn foreign(clients: Clients, op: Op) {
    let bearer = Bearer::new(&clients, &op);
    let mut rng = bearer.rng();
    let Some(kid) = bearer.known_key() else {
        return;
    };
    let own = bearer.tenant.clone();
    let other = Bearer {
        tenant: format!("t{}", op.arg / SLOTS + 1),
        ..bearer
    };
    let token = other.good(SCOPES, &mut rng);
    let of_keys: Vec<usize> = (0..DOORS.len())
        .filter(|n| DOORS[*n].path == SIGN || DOORS[*n].path.contains("{kid}"))
        .collect();
    let door = of_keys[seed::pick(&mut rng, 0, of_keys.len() as u64 - 1) as usize];
    let body = match DOORS[door].path {
        SIGN => json!({ "kid": kid, "message": other.client.message() }),
        path if path.ends_with("policy") => json!({ "min_version": 1 }),
        _ => json!({}),
    };
    let (outcome, _) = other.bring(&token, door, &kid, &body).await;
    if let Outcome::Answered(status @ 200..300) = outcome {
        let (path, as_whom) = (DOORS[door].path, &other.tenant);
        let detail = format_args!("{path} with a key of {own} by a token of {as_whom}");
        clients.tell("client.crossed_tenants", u64::from(status), detail);
    }
}
