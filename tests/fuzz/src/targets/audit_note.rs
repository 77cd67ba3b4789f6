//! Signed notes, checkpoints and verifier keys: what is taken has one spelling, the rest is one line of error.

use ron_kms::{
    audit::{
        checkpoint::{Checkpoint, Trust},
        note::{KeyKind, Note, VerifierKey},
    },
    offline::parse_keys,
};

pub fn run(bytes: &[u8]) {
    let key = VerifierKey::new("example.com/kms", KeyKind::Ed25519, &[9; 32]);
    let trust = Trust {
        origin: "example.com/kms".into(),
        keys: vec![key.expect("a key of 32 bytes")],
    };
    let refused = trust.verify(bytes).expect_err("nobody signed this");
    assert_eq!(refused.to_string().lines().count(), 1, "{refused}");
    if let Ok(note) = Note::parse(bytes) {
        assert_eq!(note.encode().as_bytes(), bytes);
        let _ = Checkpoint::parse(&note.text);
    }
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(checkpoint) = Checkpoint::parse(text) {
        assert!(text.starts_with(&checkpoint.text()));
    }
    if let Ok(key) = VerifierKey::parse(text) {
        assert_eq!(key.encode(), text);
    }
    if let Err(refused) = parse_keys(text) {
        assert_eq!(refused.to_string().lines().count(), 1, "{refused}");
    }
}
