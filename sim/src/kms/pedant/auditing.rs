//! The log, read over HTTP by the formats alone and compared with what it must tell, record by record.
//!
//! Root, signature, tiles and proofs are computed here. Always: every use and change of a key is told once, in order,
//! with its number, at its time, and nothing else is told.

use serde_json::{Value, json};

use super::{
    Session,
    log::{Told, hex},
    refusal::refusal,
    wire::{Answer, Ask, Verdict, difference},
};
use crate::kms::plain_log::{
    Hash, TreeHead, is_signed, leads_to_its_root, leaf_hash, one_entry, root, signed_at, tree_head,
};

const CHECKPOINT: &str = "/v1/kms/audit/checkpoint";
const BUNDLE: u64 = 256;
const TEXT: (&str, &str) = ("content-type", "text/plain; charset=utf-8");
const OCTETS: (&str, &str) = ("content-type", "application/octet-stream");
const MOVING: (&str, &str) = ("cache-control", "no-cache");
/// A checkpoint that is due is looked for every quarter of its interval, and written then.
const WRITTEN_MS: u64 = 300;

/// One look at the checkpoint and a record under it.
pub async fn look(s: &mut Session<'_>) -> Verdict {
    let Some(head) = checkpoint(s).await? else {
        return Ok(());
    };
    let last = s.it.log.places.last().map_or(0, |(_, index)| *index);
    if last >= head.size {
        return hardly_covered(s, last).await;
    }
    let index = s.pick(0, head.size - 1);
    let entries = bundle(s, index / BUNDLE, head.size).await?;
    match entries {
        Some(entries) => proof(s, index, &entries[(index % BUNDLE) as usize]).await,
        None => Ok(()),
    }
}

/// A record that was behind the checkpoint a moment ago has its proof, or will have it soon.
async fn hardly_covered(s: &mut Session<'_>, index: u64) -> Verdict {
    let ask = Ask::get(format!("/v1/kms/audit/proof/{index}"));
    let answer = s.send(ask, false).await?;
    match answer.status {
        200 => answer.has(&[TEXT, MOVING]),
        _ => s.refuse(&answer, None, &refusal("not_covered")),
    }
}

/// All of it, once a checkpoint covers all that was asked.
pub async fn compare(s: &mut Session<'_>) -> Verdict {
    let patience = s.it.settings.checkpoint_ms * 3 / 2 + WRITTEN_MS;
    super::travelling::past(s, 2 * patience + 1_000).await?;
    // Once the last plain record is written, one checkpoint more covers it.
    s.wire.wait_ms(patience).await;
    let Some(head) = checkpoint(s).await? else {
        return Err("the log has no checkpoint".to_owned());
    };
    let entries = entries(s, head.size).await?;
    let leaves: Vec<Hash> = entries.iter().map(|entry| leaf_hash(entry)).collect();
    if root(&leaves) != head.root {
        return Err(format!("the root over {} entries is another", head.size));
    }
    tiles(s, &leaves).await?;
    let records: Vec<Value> = entries
        .iter()
        .map(|entry| serde_json::from_slice(entry).unwrap_or_default())
        .collect();
    own_records(s, &records, &leaves)?;
    told(s, &records)?;
    places(s, &records)?;
    let index = s.pick(0, head.size - 1);
    proof(s, index, &entries[index as usize]).await?;
    // At rest the log is covered to its end, and there is nothing behind.
    let path = format!("/v1/kms/audit/proof/{}", head.size);
    let answer = s.send(Ask::get(path), false).await?;
    s.refuse(&answer, None, &refusal("record_not_found"))
}

/// The newest checkpoint: signed, by its name, never smaller than before. There is none at the very beginning.
async fn checkpoint(s: &mut Session<'_>) -> Verdict<Option<TreeHead>> {
    let answer = s.send(Ask::get(CHECKPOINT), true).await?;
    if answer.status == 404 && s.it.covered == 0 {
        s.refuse(&answer, None, &refusal("record_not_found"))?;
        return Ok(None);
    }
    answer.must(answer.status == 200, "a checkpoint")?;
    answer.has(&[TEXT, MOVING])?;
    let note = String::from_utf8_lossy(&answer.bytes).into_owned();
    let origin = note.lines().next() == Some(&s.it.settings.origin);
    answer.must(origin, "the log's name in the first line")?;
    let disk = s.wire.world().node_parts(s.wire.node).disk;
    let keys = disk.read_file("audit/keys.txt").unwrap_or_default();
    let keys = String::from_utf8_lossy(&keys).into_owned();
    answer.must(is_signed(&note, &keys), "a checkpoint that is signed")?;
    let at_s = signed_at(&note, &keys);
    let past = at_s.is_some_and(|at_s| at_s * 1000 <= answer.ended_ms);
    answer.must(past, "a checkpoint that says when it was signed")?;
    let head = tree_head(&note).filter(|head| head.size > 0 && head.size >= s.it.covered);
    let Some(head) = head else {
        return answer.differs(format_args!("a size from {} on", s.it.covered), note);
    };
    s.it.covered = head.size;
    Ok(Some(head))
}

async fn entries(s: &mut Session<'_>, size: u64) -> Verdict<Vec<Vec<u8>>> {
    let mut all = Vec::new();
    for index in 0..size.div_ceil(BUNDLE) {
        let entries = bundle(s, index, size).await?;
        all.extend(entries.ok_or_else(|| format!("bundle {index} of {size} entries is gone"))?);
    }
    Ok(all)
}

/// A partial bundle may be gone once a later checkpoint made it larger.
async fn bundle(s: &mut Session<'_>, index: u64, size: u64) -> Verdict<Option<Vec<Vec<u8>>>> {
    let width = (size - index * BUNDLE).min(BUNDLE);
    let answer = tile(s, "entries", index, width).await?;
    if answer.status == 404 && width < BUNDLE {
        s.refuse(&answer, None, &refusal("record_not_found"))?;
        return Ok(None);
    }
    let mut rest = &answer.bytes[..];
    let mut entries = Vec::new();
    while let Some((entry, behind)) = one_entry(rest) {
        entries.push(entry.to_vec());
        rest = behind;
    }
    let whole = rest.is_empty() && entries.len() as u64 == width;
    answer.must(whole, format_args!("{width} entries"))?;
    Ok(Some(entries))
}

/// The hashes of the lowest level.
async fn tiles(s: &mut Session<'_>, leaves: &[Hash]) -> Verdict {
    for (index, hashes) in leaves.chunks(BUNDLE as usize).enumerate() {
        let answer = tile(s, "0", index as u64, hashes.len() as u64).await?;
        answer.must(answer.bytes == hashes.concat(), "the hashes of the entries")?;
    }
    Ok(())
}

async fn tile(s: &mut Session<'_>, kind: &str, index: u64, width: u64) -> Verdict<Answer> {
    let (path, keep) = match width {
        BUNDLE => (
            format!("/v1/kms/audit/tile/{kind}/{index:03}"),
            "private, max-age=31536000, immutable",
        ),
        width => (
            format!("/v1/kms/audit/tile/{kind}/{index:03}.p/{width}"),
            "private, max-age=60",
        ),
    };
    let answer = s.send(Ask::get(path), true).await?;
    if answer.status != 404 {
        answer.must(answer.status == 200, "a tile")?;
        answer.has(&[OCTETS, ("cache-control", keep)])?;
    }
    Ok(answer)
}

async fn proof(s: &mut Session<'_>, index: u64, entry: &[u8]) -> Verdict {
    let answer = s
        .send(Ask::get(format!("/v1/kms/audit/proof/{index}")), true)
        .await?;
    answer.must(answer.status == 200, "a proof")?;
    answer.has(&[TEXT, MOVING])?;
    let text = String::from_utf8_lossy(&answer.bytes);
    let named = text.starts_with("c2sp.org/tlog-proof@v1\nextra ");
    let leads = leads_to_its_root(&answer.bytes, index, entry);
    answer.must(
        named && leads,
        "a proof that leads to the checkpoint's root",
    )
}

// -------------------------------------------------------------------------------------- comparing

/// Every record counts itself, and what the log tells of itself is true.
fn own_records(s: &Session<'_>, records: &[Value], leaves: &[Hash]) -> Verdict {
    let (mut seqs, mut ends) = (0, s.it.log.ends.iter());
    for (index, record) in records.iter().enumerate() {
        let event = &record["event"];
        let wrong = |what: &str| Err(format!("record {index}: {what}: {record}"));
        let expected = json!({ "v": 1, "index": index, "at_ms": record["at_ms"], "event": event });
        if let Some(found) = difference("record", &expected, record) {
            return wrong(&found);
        }
        let Some((kind, told)) = event.as_object().and_then(|event| event.iter().next()) else {
            return wrong("it tells nothing");
        };
        match kind.as_str() {
            "checkpoint" => {
                let size = told["size"].as_u64().unwrap_or(u64::MAX) as usize;
                let under = leaves.get(..size).map(root).map(|root| hex(&root));
                if under.is_none() || told["root"].as_str() != under.as_deref() {
                    return wrong("it tells of another root");
                }
            }
            "reserve" if told["end"].as_u64().is_some_and(|end| end > seqs) => {}
            "closed" if told["next"].as_u64() == ends.next().copied() => {}
            "intent" | "outcome" | "operation" | "key" => {
                seqs = seqs.max(told["seq"].as_u64().unwrap_or(0) + 1);
            }
            "nonce_mark" => {}
            _ => return wrong("it was not expected"),
        }
    }
    Ok(())
}

/// What was asked is told, in order, and nothing else.
fn told(s: &Session<'_>, records: &[Value]) -> Verdict {
    let own = |record: &&Value| {
        let kinds = ["intent", "outcome", "operation", "key", "nonce_mark"];
        kinds.iter().any(|kind| record["event"].get(kind).is_some())
    };
    let came: Vec<&Value> = records.iter().filter(own).collect();
    let expected = &s.it.log.told;
    let mut at = 0;
    while at < expected.len().max(came.len()) {
        let (Some(told), Some(record)) = (expected.get(at), came.get(at)) else {
            let (wanted, found) = (expected.len(), came.len());
            let next = expected
                .get(at)
                .map(|told| &told.event)
                .or(came.get(at).copied());
            return Err(format!(
                "the log tells {found} of {wanted} events: {next:?}"
            ));
        };
        let together = expected[at..]
            .iter()
            .take_while(|other| other.group == told.group);
        match told.group {
            None => {
                one(told, record)?;
                at += 1;
            }
            Some(_) => {
                let group = &expected[at..at + together.count()];
                let found = came.get(at..at + group.len()).unwrap_or_default();
                in_any_order(group, found)?;
                at += group.len();
            }
        }
    }
    Ok(())
}

fn one(told: &Told, record: &Value) -> Verdict {
    let place = format!("record {}", record["index"]);
    match difference(&place, &told.event, &record["event"]) {
        None => in_time(told, record),
        Some(found) => Err(format!("the log: {found}; expected was {}", told.event)),
    }
}

fn in_time(told: &Told, record: &Value) -> Verdict {
    let (from, to) = told.at_ms;
    let at_ms = record["at_ms"].as_u64().unwrap_or(0);
    match (from..=to).contains(&at_ms) {
        true => Ok(()),
        false => Err(format!(
            "the log: {from}..={to} was expected as at_ms of {record}"
        )),
    }
}

/// What housekeeping did at once: each once, under numbers of its own.
fn in_any_order(group: &[Told], found: &[&Value]) -> Verdict {
    let bare = |record: &Value| {
        let mut event = record["event"].clone();
        if let Some(key) = event["key"].as_object_mut() {
            key.remove("seq");
        }
        event
    };
    let seq = |record: &Value| record["event"]["key"]["seq"].as_u64();
    let follows = |pair: &[&Value]| seq(pair[0]).map(|seq| seq + 1) == seq(pair[1]);
    if !found.windows(2).all(follows) {
        return Err(format!("the log: housekeeping skips a number: {found:?}"));
    }
    let mut left: Vec<&Told> = group.iter().collect();
    for record in found {
        let event = bare(record);
        let Some(at) = left.iter().position(|told| told.event == event) else {
            return Err(format!(
                "the log: housekeeping was not expected to do {record}"
            ));
        };
        in_time(left.remove(at), record)?;
    }
    match left.first() {
        None => Ok(()),
        Some(told) => Err(format!("the log does not tell {}", told.event)),
    }
}

/// A receipt names the record that tells its operation.
fn places(s: &Session<'_>, records: &[Value]) -> Verdict {
    for (seq, index) in &s.it.log.places {
        let record = records.get(*index as usize).unwrap_or(&Value::Null);
        let kinds = ["intent", "operation", "key"];
        let named = |kind: &str| record["event"][kind]["seq"].as_u64() == Some(*seq);
        if !kinds.into_iter().any(named) {
            return Err(format!(
                "number {seq} stands at {index}, its receipt says; there is {record}"
            ));
        }
    }
    Ok(())
}
