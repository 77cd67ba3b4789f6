//! Receipts: one file that proves its entry, and nothing else.

use ron_kms::{
    audit::{checkpoint::Checkpoint, record::Event},
    offline::{ReceiptFault, verify_receipt},
};

use crate::{
    disk, eventful,
    written::{Keys, ORIGIN},
};

#[test]
fn a_receipt_is_one_file_that_proves_its_entry() {
    let (disk, keys, others) = (disk(), Keys::new(1), Keys::new(2));
    let writer = eventful(&disk, &keys);
    for index in [0, 255, 256, 662] {
        let receipt = writer.receipt(index);
        let text = receipt.encode();
        let proven = verify_receipt(text.as_bytes(), None, &keys.trust()).unwrap();
        assert_eq!(proven.record.index, index);
        assert_eq!(Some(&proven.entry), receipt.extra.as_ref());
        assert_eq!(proven.verified.checkpoint.size, 663);
        let error = verify_receipt(text.as_bytes(), None, &others.trust()).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("does not verify: no signature of"),
            "{error}"
        );
        assert!(!error.to_string().contains('\n'));
    }
    let mut bare = writer.receipt(9);
    let entry = bare.extra.take().unwrap();
    let text = bare.encode();
    let check =
        |text: &str, entry: Option<&[u8]>| verify_receipt(text.as_bytes(), entry, &keys.trust());
    assert_eq!(check(&text, None), Err(ReceiptFault::NoEntry));
    assert!(check(&text, Some(&entry)).is_ok());
    // The caller's entry counts, not the one that the receipt carries.
    let other = writer.receipt(10).extra.unwrap();
    bare.extra = Some(entry);
    let error = check(&bare.encode(), Some(&other)).unwrap_err().to_string();
    assert_eq!(
        error,
        "the entry is not under the checkpoint: the proof leads to another root"
    );
    bare.extra = Some(other);
    assert!(check(&bare.encode(), None).is_err());
}

/// The tree may hold what is no record of this log; a receipt for it says nothing.
#[test]
fn a_receipt_for_what_is_no_record_or_another_index_is_refused() {
    use ron_kms::audit::{
        merkle::{leaf_hash, node_hash},
        receipt::Receipt,
        record::Record,
    };
    let keys = Keys::new(1);
    let record = Record {
        index: 5,
        at_ms: 0,
        event: Event::Reserve { end: 1 },
    };
    let leaves = [b"no record".to_vec(), record.encode().unwrap()];
    let hashes = [leaf_hash(&leaves[0]), leaf_hash(&leaves[1])];
    let head = Checkpoint {
        origin: ORIGIN.into(),
        size: 2,
        root: node_hash(&hashes[0], &hashes[1]),
    };
    let note = head.sign(&keys.signing(), 1).unwrap().encode();
    let check = |index: usize| {
        let receipt = Receipt {
            extra: Some(leaves[index].clone()),
            index: index as u64,
            path: vec![hashes[1 - index]],
            checkpoint: note.clone(),
        };
        verify_receipt(receipt.encode().as_bytes(), None, &keys.trust())
    };
    assert!(matches!(check(0), Err(ReceiptFault::Record(_))));
    let error = ReceiptFault::OtherIndex { said: 5, proven: 1 };
    assert_eq!(check(1), Err(error));
}
