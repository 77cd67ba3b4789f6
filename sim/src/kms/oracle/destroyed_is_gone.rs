//! What was destroyed is gone: the key store, read by its tables alone, holds no secret of it.

use std::collections::BTreeSet;

use redb::{
    Database, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition,
    backends::InMemoryBackend,
};
use ron_kms::audit::record::{Event as Told, KeyChange};

use super::{nodes, records};
use crate::{
    kms::STORE_FILE,
    oracle::{EVERYWHERE, NodeView, Oracle, OracleKind, Verdict, WorldView},
};

pub const KIND: OracleKind = OracleKind {
    name: "kms.destroyed_is_gone",
    law: "soon after the log tells a version destroyed, the key store holds no secret of it",
    premise: EVERYWHERE,
    make: || Box::new(DestroyedIsGone),
};

/// A destruction at the very end may still be under way.
const SOON_MS: u64 = 2_000;

/// By kid and version: the sealed secret, the public half.
const VERSIONS: TableDefinition<'static, Name, Halves> = TableDefinition::new("versions");
type Name = (&'static str, u32);
type Halves = (&'static [u8], &'static [u8]);

struct DestroyedIsGone;

impl Oracle for DestroyedIsGone {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn finish(&mut self, view: &WorldView) -> Verdict {
        for node in nodes(view) {
            let records = records(node);
            let last_ms = records.iter().map(|record| record.at_ms).max().unwrap_or(0);
            let mut destroyed = BTreeSet::new();
            for record in &records {
                if let Told::Key {
                    kid,
                    version,
                    change: KeyChange::Destroyed,
                    ..
                } = &record.event
                    && record.at_ms + SOON_MS < last_ms
                {
                    destroyed.insert((kid.clone(), *version));
                }
            }
            if destroyed.is_empty() {
                continue;
            }
            for (kid, version) in held(node).map_err(|error| error.to_string())? {
                if destroyed.contains(&(kid.clone(), version)) {
                    return Err(format!(
                        "{kid}#v{version} is destroyed, and its secret is there"
                    ));
                }
            }
        }
        Ok(())
    }
}

/// The versions whose secret is in the store.
fn held(node: &NodeView) -> Result<Vec<(String, u32)>, redb::Error> {
    let bytes = node.disk.read_file(STORE_FILE).unwrap_or_default();
    let copy = InMemoryBackend::new();
    copy.set_len(bytes.len() as u64)?;
    copy.write(0, &bytes)?;
    let database = Database::builder().create_with_backend(copy)?;
    let reading = database.begin_read()?;
    let table = match reading.open_table(VERSIONS) {
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
        table => table?,
    };
    let mut held = Vec::new();
    for row in table.iter()? {
        let (name, halves) = row?;
        let ((kid, version), (sealed, _)) = (name.value(), halves.value());
        if !sealed.is_empty() {
            held.push((kid.to_owned(), version));
        }
    }
    Ok(held)
}
