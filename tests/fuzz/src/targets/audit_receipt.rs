//! Receipts, and the records they carry: what is taken has one spelling, the rest is one line of error.

use ron_kms::{
    audit::{
        checkpoint::Trust,
        note::{KeyKind, VerifierKey},
        receipt::Receipt,
        record::Record,
    },
    offline::verify_receipt,
};

pub fn run(input: (&[u8], bool)) {
    let (bytes, headed) = input;
    let header = b"c2sp.org/tlog-proof@v1\n";
    let whole = if headed {
        [header, bytes].concat()
    } else {
        bytes.to_vec()
    };
    let key = VerifierKey::new("example.com/kms", KeyKind::Ed25519, &[9; 32]);
    let trust = Trust {
        origin: "example.com/kms".into(),
        keys: vec![key.expect("a key of 32 bytes")],
    };
    let refused = verify_receipt(&whole, Some(b"entry"), &trust);
    let refused = refused.expect_err("nobody signed this").to_string();
    assert_eq!(refused.lines().count(), 1, "{refused}");
    if let Ok(receipt) = Receipt::parse(&whole) {
        assert_eq!(receipt.encode().as_bytes(), whole);
    }
    if let Ok(record) = Record::decode(bytes) {
        assert_eq!(record.encode().as_deref(), Ok(bytes));
    }
}
