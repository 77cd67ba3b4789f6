//! An auditor outside: reads checkpoints, tiles and proofs over HTTP and checks them by the formats alone.

use super::{Client, Kind, client};
use crate::{
    kms::plain_log::{Hash, leads_to_its_root, one_entry, tree_head},
    ops::Op,
    timer,
    trace::Outcome,
    workload::Clients,
};

/// Looks at the checkpoint, and at the proof of one record under it.
pub async fn audit(clients: Clients, op: Op) {
    let client = client(&clients, &op);
    // Somebody must have done something.
    if client.key(Kind::Signs).await.is_none() {
        return;
    }
    if let Some(size) = covers(&client).await {
        // The first that is not covered, too: it is refused for that.
        let index = match op.key % 4 {
            0 => size,
            _ => op.key % size.max(1),
        };
        proves(&client, index).await;
    }
}

/// How many records the checkpoint covers.
pub async fn covers(client: &Client<'_>) -> Option<u64> {
    let began_us = timer::elapsed().as_micros();
    let note = read(client, "/v1/kms/audit/checkpoint").await?;
    match std::str::from_utf8(&note).ok().and_then(tree_head) {
        Some(head) => {
            let asked = format_args!("{} {began_us}", client.op.on);
            client
                .clients
                .tell("client.checkpoint_asked", head.size, asked);
            tell_head(client, head.size, &head.root);
            Some(head.size)
        }
        None => {
            let detail = format_args!("the checkpoint is no text");
            client.clients.tell("client.proof", 0, detail);
            None
        }
    }
}

/// Whether the proof of a record leads to its root; `None` if it cannot be had now.
pub async fn proves(client: &Client<'_>, index: u64) -> Option<bool> {
    let proof = read(client, &format!("/v1/kms/audit/proof/{index}")).await?;
    let (_, note) = std::str::from_utf8(&proof).ok()?.split_once("\n\n")?;
    let entry = entry(client, index, tree_head(note)?.size).await?;
    let leads = leads_to_its_root(&proof, index, &entry);
    let detail = format_args!("record {index} of {}", client.op.on);
    client
        .clients
        .tell("client.proof", u64::from(leads), detail);
    Some(leads)
}

async fn read(client: &Client<'_>, path: &str) -> Option<Vec<u8>> {
    let none = serde_json::Value::Null;
    let (outcome, bytes) = client.send("kms.audit", "GET", path, &none).await;
    (outcome == Outcome::Answered(200)).then(|| bytes.to_vec())
}

fn tell_head(client: &Client<'_>, size: u64, root: &Hash) {
    let hex: String = root.iter().map(|byte| format!("{byte:02x}")).collect();
    let on = &client.op.on;
    client
        .clients
        .tell("client.checkpoint", size, format_args!("{on} {hex}"));
}

/// The entry itself, from its bundle; a partial bundle may be gone by now.
async fn entry(client: &Client<'_>, index: u64, size: u64) -> Option<Vec<u8>> {
    let bundle = index / 256;
    let width = (size - bundle * 256).min(256);
    let path = match width {
        256 => format!("/v1/kms/audit/tile/entries/{bundle:03}"),
        width => format!("/v1/kms/audit/tile/entries/{bundle:03}.p/{width}"),
    };
    let bytes = read(client, &path).await?;
    let mut rest = &bytes[..];
    for _ in 0..index % 256 {
        rest = one_entry(rest)?.1;
    }
    Some(one_entry(rest)?.0.to_vec())
}
