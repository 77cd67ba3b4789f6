//! The first version of the file, read only.
//!
//! ```text
//! header  "RONDHTRJ" | version u16 | check 8
//! entry   length u32 | check 8 | kind u8 | the rest, as the kind says
//! ```

use ron_core::journal::{Broken, CHECK, End, Format, HeaderError, Scan};

use super::{Entry, Records, decode_entry};

const HEADER_LEN: usize = 8 + 2 + CHECK;
const HEAD: usize = 4 + CHECK;
const MAX_ENTRY_BYTES: usize = 64 * 1024;

pub(super) fn scan(file: &[u8], mut visit: impl FnMut(Entry)) -> Result<Scan, HeaderError> {
    let name = Records::NAME;
    let header = file.split_at_checked(HEADER_LEN);
    let (header, _) = header.ok_or(HeaderError::Damaged { name })?;
    let (covered, check) = header.split_at(HEADER_LEN - CHECK);
    if check != Records::check(&[covered]) {
        return Err(HeaderError::Damaged { name });
    }
    let (mut at, mut records, mut rotten) = (HEADER_LEN, 0, 0);
    let mut end = End::Clean;
    while at < file.len() {
        let broken = match entry_at(file, at) {
            Some((next, Some(entry))) => {
                records += 1;
                visit(entry);
                at = next;
                continue;
            }
            // A broken entry with a sound one behind it was whole once. With none it is where a crash tore the file.
            Some((next, None)) if matches!(entry_at(file, next), Some((_, Some(_)))) => {
                rotten += 1;
                at = next;
                continue;
            }
            Some(_) => Broken::BadCheck,
            None => Broken::Incomplete,
        };
        end = End::Torn(broken);
        break;
    }
    Ok(Scan {
        records,
        rotten,
        next: records,
        valid_len: at as u64,
        last_batch: at as u64,
        end,
    })
}

/// Where the next one begins, and the entry if it is sound. None where none could begin, or none that is whole.
fn entry_at(file: &[u8], start: usize) -> Option<(usize, Option<Entry>)> {
    let (head, rest) = file.get(start..)?.split_first_chunk::<HEAD>()?;
    let (length, check) = head.split_at(4);
    let len = u32::from_be_bytes(length.try_into().ok()?) as usize;
    if len == 0 || len > MAX_ENTRY_BYTES {
        return None;
    }
    let content = rest.get(..len)?;
    let sound = check == Records::check(&[length, content]);
    let entry = sound.then(|| decode_entry(content)).flatten();
    Some((start + HEAD + len, entry))
}
