//! What readers of the published log are served: its tiles, and the receipt of one record.

use bytes::Bytes;

use super::Auditor;
use crate::{
    audit::{
        log::Refusal,
        merkle::{leaf_hash, prove_inclusion, verify_inclusion},
        receipt::Receipt,
        tiles::{Kind, TILE_WIDTH, Tile, TileNodes, parse_entries},
    },
    error::KmsError,
    journal,
};

impl Auditor {
    /// A tile of the published tree.
    pub async fn tile(&self, tile: Tile) -> Result<Bytes, KmsError> {
        let size = self.note().size;
        let kind = tile.kind();
        let first = tile.index().checked_mul(TILE_WIDTH);
        let end = first.and_then(|first| first.checked_add(u64::from(tile.width()) - 1));
        let published = end.and_then(|end| Tile::holding(kind, end, size));
        if published.is_none() {
            return Err(KmsError::NoSuchRecord);
        }
        let read = self
            .env
            .disk(move |disk| journal::read_tile(disk.as_ref(), &tile))
            .await;
        match read {
            Ok(Ok(Some(bytes))) => Ok(bytes.into()),
            Ok(Ok(None)) => Err(KmsError::NoSuchRecord),
            Ok(Err(error)) => Err(KmsError::Store(format!("audit log: {error}"))),
            Err(lost) => Err(KmsError::Store(format!("audit log: {lost}"))),
        }
    }

    /// The receipt of one record: its entry, its path and the published checkpoint.
    pub async fn proof(&self, index: u64) -> Result<String, KmsError> {
        let note = self.note();
        if index >= note.size {
            return match index < self.size() {
                true => Err(KmsError::NotCovered { index }),
                false => Err(KmsError::NoSuchRecord),
            };
        }
        let failed = |error: String| KmsError::Store(format!("audit log: {error}"));
        let made = self
            .env
            .disk(move |disk| {
                let read = |tile: &Tile| journal::read_tile(disk.as_ref(), tile).ok().flatten();
                let path = prove_inclusion(
                    index,
                    note.size,
                    &TileNodes {
                        size: note.size,
                        read,
                    },
                )
                .map_err(|error| error.to_string())?;
                let bundle = Tile::holding(Kind::Entries, index, note.size)
                    .ok_or("no such entry".to_owned())?;
                let bytes = read(&bundle).ok_or(format!("{bundle} is missing"))?;
                let entries =
                    parse_entries(bundle.width(), &bytes).map_err(|error| error.to_string())?;
                let entry = entries[(index % TILE_WIDTH) as usize].to_vec();
                let head = journal::published_head(&note.bytes).ok_or("no checkpoint")?;
                verify_inclusion(&leaf_hash(&entry), index, head.size, &path, &head.root)
                    .map_err(|error| format!("record {index} and its tiles differ: {error}"))?;
                let receipt = Receipt {
                    extra: Some(entry),
                    index,
                    path,
                    checkpoint: String::from_utf8_lossy(&note.bytes).into_owned(),
                };
                Result::<_, String>::Ok(receipt.encode())
            })
            .await;
        made.map_err(|lost| failed(lost.to_string()))?
            .map_err(|damage| {
                // A receipt that nobody could verify is none. The next start mends the tiles.
                tracing::error!(%damage, "a published tile is damaged");
                self.metrics.integrity_failed.inc();
                KmsError::Audit(Refusal::Integrity)
            })
    }
}
