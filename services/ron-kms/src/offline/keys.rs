//! Verifier keys as text: one a line, all of one log, whose origin is their name.

use super::fault::KeysError;
use crate::audit::{
    checkpoint::Trust,
    note::{KeyKind, VerifierKey},
};

/// Empty lines and lines that begin with `#` are skipped.
pub fn parse_keys(text: &str) -> Result<Trust, KeysError> {
    let mut keys = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.trim();
        if !text.is_empty() && !text.starts_with('#') {
            let key = VerifierKey::parse(text);
            keys.push(key.map_err(|error| KeysError::Line { line, error })?);
        }
    }
    trust_of(keys)
}

/// Each of the keys must have signed.
pub fn trust_of(keys: Vec<VerifierKey>) -> Result<Trust, KeysError> {
    let first = keys.first().ok_or(KeysError::None)?.name().to_owned();
    match keys.iter().find(|key| key.name() != first) {
        Some(other) => Err(KeysError::SeveralLogs {
            first,
            other: other.name().to_owned(),
        }),
        None => Ok(Trust {
            origin: first,
            keys,
        }),
    }
}

/// The file that a service keeps: a key that is left out would be a signature not asked for.
pub fn demand_both_kinds(trust: &Trust) -> Result<(), KeysError> {
    let kinds: Vec<KeyKind> = trust.keys.iter().map(VerifierKey::kind).collect();
    match kinds == [KeyKind::Ed25519, KeyKind::MlDsa44] {
        true => Ok(()),
        false => Err(KeysError::NotBothKinds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str, kind: KeyKind) -> String {
        let length = match kind {
            KeyKind::Ed25519 => 32,
            KeyKind::MlDsa44 => 1312,
        };
        let key = VerifierKey::new(name, kind, &vec![7; length]);
        key.unwrap().encode()
    }

    #[test]
    fn keys_are_read_a_line_each_and_name_their_log() {
        let (ed25519, ml_dsa) = (
            key("a/log", KeyKind::Ed25519),
            key("a/log", KeyKind::MlDsa44),
        );
        let trust = parse_keys(&format!("# of a\n{ed25519}\n\n{ml_dsa}\n")).unwrap();
        assert_eq!(trust.origin, "a/log");
        assert_eq!(trust.keys.len(), 2);
        assert_eq!(demand_both_kinds(&trust), Ok(()));
        let one = parse_keys(&ed25519).unwrap();
        assert_eq!(demand_both_kinds(&one), Err(KeysError::NotBothKinds));
        let swapped = parse_keys(&format!("{ml_dsa}\n{ed25519}")).unwrap();
        assert_eq!(demand_both_kinds(&swapped), Err(KeysError::NotBothKinds));
    }

    #[test]
    fn bad_keys_are_refused_with_their_line() {
        let good = key("a", KeyKind::Ed25519);
        for (text, said) in [
            (String::new(), "no key"),
            ("# nothing".into(), "no key"),
            (format!("{good}\nnonsense\n"), "line 2: not a verifier key"),
            (
                format!("{good}\n{}", key("b", KeyKind::Ed25519)),
                "keys of \"a\" and of \"b\"",
            ),
        ] {
            let error = parse_keys(&text).unwrap_err().to_string();
            assert!(error.starts_with(said), "{error}");
            assert_eq!(error.lines().count(), 1);
        }
    }
}
