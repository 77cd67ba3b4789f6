//! C2SP signed notes: a text, and lines that sign it.
//!
//! The parser is strict, the verifier follows the rules of the format: lines of unknown keys are ignored,
//! a line of a known key must verify. A key is known by its name and its id together, and the id covers
//! the kind of signature, so one name may sign in several ways.

use aws_lc_rs::{
    digest,
    signature::{self, Ed25519KeyPair, KeyPair, UnparsedPublicKey},
};
use base64::{Engine, engine::general_purpose::STANDARD};

/// A note beyond this is refused unread: 16 post-quantum lines fit several times.
pub const MAX_NOTE: usize = 256 * 1024;
pub const MAX_SIGNATURES: usize = 64;
/// Signature kinds, as they enter key ids and verifier keys.
pub const ED25519: u8 = 0x01;
pub const ML_DSA_44_COSIGNATURE: u8 = 0x06;

const DASH: &str = "\u{2014} ";
const ED25519_KEY: usize = 32;
const ML_DSA_44_KEY: usize = 1312;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoteError {
    #[error(
        "the note is longer than {MAX_NOTE} bytes or has more than {MAX_SIGNATURES} signatures"
    )]
    TooLarge,
    #[error("the note is not text: UTF-8 without control characters is allowed")]
    NotText,
    #[error("the note needs a text, an empty line and signature lines, each ended by a newline")]
    Shape,
    #[error("line {line} is no signature: \"\u{2014} <name> <base64>\" is allowed")]
    Line { line: usize },
    #[error("\"{0}\" is no key name: not empty, no spaces, no plus")]
    Name(String),
    #[error("not a verifier key: <name>+<id>+<base64 of kind and public key> is allowed")]
    VerifierKey,
    #[error("the signature of {name} ({id:08x}) does not verify")]
    BadSignature { name: String, id: u32 },
    #[error("no signature of {name} ({id:08x})")]
    Unsigned { name: String, id: u32 },
}

/// A signature line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignatureLine {
    pub name: String,
    pub id: u32,
    pub signature: Vec<u8>,
}

/// A text, newline at its end included, and what signs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub text: String,
    pub signatures: Vec<SignatureLine>,
}

impl Note {
    pub fn parse(bytes: &[u8]) -> Result<Note, NoteError> {
        if bytes.len() > MAX_NOTE {
            return Err(NoteError::TooLarge);
        }
        let whole = std::str::from_utf8(bytes).map_err(|_| NoteError::NotText)?;
        if whole.chars().any(|c| c < ' ' && c != '\n') {
            return Err(NoteError::NotText);
        }
        // The last empty line parts them; the text keeps its own newline.
        let split = whole.rfind("\n\n").ok_or(NoteError::Shape)?;
        let (text, lines) = (&whole[..=split], &whole[split + 2..]);
        let lines = lines.strip_suffix('\n').ok_or(NoteError::Shape)?;
        if lines.split('\n').count() > MAX_SIGNATURES {
            return Err(NoteError::TooLarge);
        }
        let first = text.matches('\n').count() + 2;
        let signatures: Result<_, _> = lines
            .split('\n')
            .zip(first..)
            .map(|(text, line)| SignatureLine::parse(text).ok_or(NoteError::Line { line }))
            .collect();
        Ok(Note {
            text: text.to_owned(),
            signatures: signatures?,
        })
    }

    pub fn encode(&self) -> String {
        let mut whole = format!("{}\n", self.text);
        for line in &self.signatures {
            line.encode(&mut whole);
        }
        whole
    }

    /// The lines under this key's name and id.
    pub fn lines_of(&self, key: &VerifierKey) -> impl Iterator<Item = &SignatureLine> {
        let (name, id) = (key.name.clone(), key.id());
        let known = move |line: &&SignatureLine| line.name == name && line.id == id;
        self.signatures.iter().filter(known)
    }
}

impl SignatureLine {
    fn parse(line: &str) -> Option<SignatureLine> {
        let (name, encoded) = line.strip_prefix(DASH)?.split_once(' ')?;
        check_name(name).ok()?;
        let bytes = STANDARD.decode(encoded).ok()?;
        let (id, signature) = bytes.split_first_chunk()?;
        (!signature.is_empty()).then(|| SignatureLine {
            name: name.to_owned(),
            id: u32::from_be_bytes(*id),
            signature: signature.to_owned(),
        })
    }

    fn encode(&self, whole: &mut String) {
        let bytes = [&self.id.to_be_bytes()[..], &self.signature].concat();
        whole.push_str(DASH);
        whole.push_str(&self.name);
        whole.push(' ');
        STANDARD.encode_string(bytes, whole);
        whole.push('\n');
    }
}

/// How a key signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyKind {
    /// Over the note's text.
    Ed25519,
    /// Over the tree head and the time, as C2SP tlog-cosignature has it.
    MlDsa44,
}

/// A public key that a verifier trusts, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifierKey {
    name: String,
    kind: KeyKind,
    public: Vec<u8>,
}

impl VerifierKey {
    pub fn new(name: &str, kind: KeyKind, public: &[u8]) -> Result<VerifierKey, NoteError> {
        check_name(name)?;
        let length = match kind {
            KeyKind::Ed25519 => ED25519_KEY,
            KeyKind::MlDsa44 => ML_DSA_44_KEY,
        };
        match public.len() == length {
            true => Ok(VerifierKey {
                name: name.to_owned(),
                kind,
                public: public.to_owned(),
            }),
            false => Err(NoteError::VerifierKey),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    pub fn public(&self) -> &[u8] {
        &self.public
    }

    /// The first four bytes of SHA-256 over name, newline, kind and key.
    pub fn id(&self) -> u32 {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(self.name.as_bytes());
        context.update(&[b'\n', self.kind.byte()]);
        context.update(&self.public);
        let hash = context.finish();
        hash.as_ref()
            .iter()
            .take(4)
            .fold(0, |id, byte| id << 8 | u32::from(*byte))
    }

    /// The text form that is handed to verifiers.
    pub fn encode(&self) -> String {
        let bytes = [&[self.kind.byte()][..], &self.public].concat();
        format!("{}+{:08x}+{}", self.name, self.id(), STANDARD.encode(bytes))
    }

    pub fn parse(text: &str) -> Result<VerifierKey, NoteError> {
        let mut parts = text.splitn(3, '+');
        let mut part = || parts.next().ok_or(NoteError::VerifierKey);
        let (name, id, encoded) = (part()?, part()?, part()?);
        let bytes = STANDARD
            .decode(encoded)
            .map_err(|_| NoteError::VerifierKey)?;
        let (kind, public) = match bytes.split_first() {
            Some((&ED25519, public)) => (KeyKind::Ed25519, public),
            Some((&ML_DSA_44_COSIGNATURE, public)) => (KeyKind::MlDsa44, public),
            _ => return Err(NoteError::VerifierKey),
        };
        let key = VerifierKey::new(name, kind, public)?;
        match format!("{:08x}", key.id()) == id {
            true => Ok(key),
            false => Err(NoteError::VerifierKey),
        }
    }

    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let verified = match self.kind {
            KeyKind::Ed25519 => {
                UnparsedPublicKey::new(&signature::ED25519, &self.public).verify(message, signature)
            }
            KeyKind::MlDsa44 => UnparsedPublicKey::new(&signature::ML_DSA_44, &self.public)
                .verify(message, signature),
        };
        verified.is_ok()
    }
}

impl KeyKind {
    fn byte(self) -> u8 {
        match self {
            KeyKind::Ed25519 => ED25519,
            KeyKind::MlDsa44 => ML_DSA_44_COSIGNATURE,
        }
    }
}

/// The Ed25519 line over a text.
pub fn sign_ed25519(
    name: &str,
    key: &Ed25519KeyPair,
    text: &str,
) -> Result<SignatureLine, NoteError> {
    let verifier = VerifierKey::new(name, KeyKind::Ed25519, key.public_key().as_ref())?;
    Ok(SignatureLine {
        name: name.to_owned(),
        id: verifier.id(),
        signature: key.sign(text.as_bytes()).as_ref().to_owned(),
    })
}

fn check_name(name: &str) -> Result<(), NoteError> {
    let bad = |c: char| c.is_whitespace() || c == '+' || c.is_control();
    match name.is_empty() || name.contains(bad) {
        true => Err(NoteError::Name(name.to_owned())),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key() -> Ed25519KeyPair {
        Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap()
    }

    fn signed() -> Note {
        let text = "first\n\nthird\n".to_owned();
        let line = sign_ed25519("example.com/log", &key(), &text).unwrap();
        Note {
            text,
            signatures: vec![line],
        }
    }

    #[test]
    fn a_note_reads_back_and_its_text_may_have_empty_lines() {
        let note = signed();
        let whole = note.encode();
        assert!(whole.starts_with("first\n\nthird\n\n\u{2014} example.com/log "));
        assert_eq!(Note::parse(whole.as_bytes()), Ok(note));
    }

    /// The test vector of the format's first implementation.
    #[test]
    fn the_formats_own_test_vector_verifies() {
        let key = VerifierKey::parse(
            "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW",
        )
        .unwrap();
        let whole = "If you think cryptography is the answer to your problem,\n\
            then you don't know what your problem is.\n\n\
            \u{2014} PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n";
        let note = Note::parse(whole.as_bytes()).unwrap();
        let lines: Vec<_> = note.lines_of(&key).collect();
        assert_eq!(lines.len(), 1);
        assert!(key.verifies(note.text.as_bytes(), &lines[0].signature));
        assert!(!key.verifies(b"another text\n", &lines[0].signature));
    }

    #[test]
    fn malformed_notes_are_refused_with_their_reason() {
        let good = signed().encode();
        let line = good.lines().last().unwrap();
        let many = format!("text\n\n{}", format!("{line}\n").repeat(MAX_SIGNATURES + 1));
        let table: [(&str, &[u8], NoteError); 12] = [
            ("empty", b"", NoteError::Shape),
            ("no signatures", b"text\n", NoteError::Shape),
            (
                "nothing after the empty line",
                b"text\n\n",
                NoteError::Shape,
            ),
            (
                "no newline at the end",
                good.trim_end().as_bytes(),
                NoteError::Shape,
            ),
            (
                "control character",
                b"te\txt\n\n- x y\n",
                NoteError::NotText,
            ),
            ("carriage return", b"text\r\n\r\n", NoteError::NotText),
            ("not UTF-8", b"te\xffxt\n\n", NoteError::NotText),
            (
                "no dash",
                b"text\n\nname AAAAAAAA\n",
                NoteError::Line { line: 3 },
            ),
            (
                "no name",
                "text\n\n\u{2014}  AAAAAAAA\n".as_bytes(),
                NoteError::Line { line: 3 },
            ),
            (
                "bad base64",
                "text\n\n\u{2014} name AAA*AAAA\n".as_bytes(),
                NoteError::Line { line: 3 },
            ),
            (
                "only an id",
                "text\n\n\u{2014} name AAAAAA==\n".as_bytes(),
                NoteError::Line { line: 3 },
            ),
            ("too many", many.as_bytes(), NoteError::TooLarge),
        ];
        for (what, bytes, error) in table {
            assert_eq!(Note::parse(bytes), Err(error), "{what}");
        }
        let huge = vec![b'a'; MAX_NOTE + 1];
        assert_eq!(Note::parse(&huge), Err(NoteError::TooLarge));
    }

    #[test]
    fn verifier_keys_read_back_and_a_wrong_id_is_refused() {
        let pair = key();
        let public = pair.public_key().as_ref();
        let key = VerifierKey::new("example.com/log", KeyKind::Ed25519, public).unwrap();
        assert_eq!(VerifierKey::parse(&key.encode()), Ok(key.clone()));
        let tampered = key.encode().replace("example.com", "example.net");
        assert_eq!(VerifierKey::parse(&tampered), Err(NoteError::VerifierKey));
        for text in ["", "a", "a+b", "a+b+c", "a+00000000+AQ==", "a+00000000+"] {
            assert_eq!(
                VerifierKey::parse(text),
                Err(NoteError::VerifierKey),
                "{text}"
            );
        }
        for name in ["", "a b", "a+b", "a\u{a0}b"] {
            let refused = VerifierKey::new(name, KeyKind::Ed25519, public);
            assert_eq!(refused, Err(NoteError::Name(name.to_owned())));
        }
        let short = VerifierKey::new("a", KeyKind::MlDsa44, public);
        assert_eq!(short, Err(NoteError::VerifierKey));
    }

    #[test]
    fn the_kind_of_signature_is_part_of_the_id() {
        let ed = VerifierKey {
            name: "a".into(),
            kind: KeyKind::Ed25519,
            public: vec![1; 32],
        };
        let ml = VerifierKey {
            kind: KeyKind::MlDsa44,
            ..ed.clone()
        };
        assert_ne!(ed.id(), ml.id());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_note_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Note::parse(&bytes);
        }

        #[test]
        fn what_parses_encodes_to_the_same_bytes(text in "[a-z\n]{0,20}\n", sig in prop::collection::vec(any::<u8>(), 1..80), id: u32) {
            let note = Note { text, signatures: vec![SignatureLine { name: "n".into(), id, signature: sig }] };
            prop_assert_eq!(Note::parse(note.encode().as_bytes()), Ok(note));
        }
    }
}
