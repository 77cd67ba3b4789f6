//! Audit logs and signatures judged by code that was not written here, and by our own beside it.
#![allow(
    clippy::disallowed_methods,
    reason = "writes and damages real directories"
)]

#[path = "../../services/ron-kms/tests/written/mod.rs"]
mod written;

use std::{
    fs,
    path::{Path, PathBuf},
};

use ed25519_dalek::{Signer, Verifier};
use ron_io::FileDisk;
use ron_kms::{
    audit::{
        checkpoint::Checkpoint,
        log::Policy,
        tiles::{Kind, Tile},
    },
    keys::{
        Algorithm, Use,
        public::PublicKey,
        signing::{Input, Signature, SigningKey},
    },
    offline::verify_directory,
};
use serde_json::{Value, json};
use tests::third_party::{CRATES, GO, PYTHON, Signatures, Verdict, check_directory};
use written::{Keys, ORIGIN, Writer, flip};

/// A directory with a log, removed with this.
struct Published {
    root: PathBuf,
    disk: FileDisk,
    keys: Keys,
    /// The first checkpoint, as somebody would have kept it.
    older: Vec<u8>,
    size: u64,
}

impl Published {
    fn new(name: &str, steps: &[usize]) -> Published {
        let name = format!("ron-third-party-{name}-{}", std::process::id());
        let root = std::env::temp_dir().join(name);
        let disk = FileDisk::open(&root).unwrap();
        let keys = Keys::new(3);
        let mut writer = Writer::open(&disk, "audit", &keys, Policy::Shed);
        let mut older = None;
        for step in steps {
            writer.operate(*step);
            writer.checkpoint();
            let saved = || fs::read(root.join("audit/checkpoint")).unwrap();
            older.get_or_insert_with(saved);
        }
        let size = writer.log.covered();
        drop(writer);
        Published {
            older: older.unwrap(),
            root,
            disk,
            keys,
            size,
        }
    }

    fn dir(&self) -> PathBuf {
        self.root.join("audit")
    }

    fn check(&self) -> Vec<(&'static str, Verdict)> {
        check_directory(&self.dir(), &self.keys.text(), Some(&self.older))
    }

    /// The checkers that find something wrong, our own last.
    fn refusers(&self) -> Vec<&'static str> {
        let verdicts = self.check();
        let bad = verdicts.iter().filter(|(_, verdict)| verdict.is_err());
        let mut names: Vec<&str> = bad.map(|(name, _)| *name).collect();
        let trust = self.keys.trust();
        if verify_directory(&self.disk, "audit", Some(&trust), &mut |_| ()).is_err() {
            names.push(OURS);
        }
        names
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

const OURS: &str = "ron-kms";
const EVERYBODY: [&str; 4] = [CRATES, GO, PYTHON, OURS];

#[test]
fn every_checker_accepts_a_log_of_several_checkpoints() {
    for (name, steps) in [
        ("few", &[1, 3][..]),
        ("some", &[200, 55, 700, 3000]),
        // Crosses into the third level of tiles.
        ("many", &[1000, 65_000]),
    ] {
        let published = Published::new(name, steps);
        for (checker, verdict) in published.check() {
            assert_eq!(verdict, Ok(()), "{checker} on {} entries", published.size);
        }
        assert_eq!(published.refusers(), [""; 0]);
    }
}

#[test]
fn a_flipped_bit_is_caught_by_every_checker_that_can_see_it() {
    let published = Published::new("flips", &[300, 2000, 700]);
    let holding = |kind, at| Tile::holding(kind, at, published.size).unwrap().path();
    let last = published.size - 1;
    let mut places = Vec::new();
    for (kind, at) in [
        (Kind::Entries, 0),
        (Kind::Entries, last),
        (Kind::Hashes { level: 0 }, 300),
        (Kind::Hashes { level: 0 }, last),
        (Kind::Hashes { level: 1 }, 2),
    ] {
        let path = holding(kind, at);
        let length = fs::read(published.dir().join(&path)).unwrap().len();
        places.extend([2, length / 2, length - 1].map(|at| (path.clone(), at, &EVERYBODY[..])));
    }
    let note = fs::read_to_string(published.dir().join("checkpoint")).unwrap();
    let lines: Vec<usize> = note.match_indices('\u{2014}').map(|(at, _)| at).collect();
    let (ed25519, ml_dsa) = (lines[0], lines[1]);
    // Behind the name, in the middle of the base64.
    let signed_name = '\u{2014}'.len_utf8() + 1 + ORIGIN.len() + 1;
    let place = |at, who| ("checkpoint".to_owned(), at, who);
    places.push(place(ed25519 + signed_name + 40, &EVERYBODY[..]));
    places.push(place(ORIGIN.len() + 1, &EVERYBODY[..]));
    places.push(place(ml_dsa + signed_name + 40, &[PYTHON, OURS][..]));
    places.push(place(ml_dsa + signed_name + 2000, &[PYTHON, OURS][..]));
    for (file, at, who) in places {
        let path = format!("audit/{file}");
        let (good, mut bad) = (fs::read(published.root.join(&path)).unwrap(), vec![]);
        match file.as_str() {
            // Another digit or letter, so that the text stays well-formed.
            "checkpoint" => {
                bad.extend(&good);
                bad[at] = if bad[at] == b'5' { b'6' } else { b'5' };
                fs::write(published.root.join(&path), &bad).unwrap();
            }
            _ => flip(&published.disk, &path, at),
        }
        assert_eq!(published.refusers(), who, "{file} at {at}");
        fs::write(published.root.join(&path), &good).unwrap();
    }
    assert_eq!(published.refusers(), [""; 0]);
}

#[test]
fn an_older_checkpoint_that_is_no_prefix_is_caught_by_every_checker() {
    let mut published = Published::new("split", &[300, 700]);
    let head = |size, root| {
        let origin = ORIGIN.to_owned();
        let head = Checkpoint { origin, size, root };
        let note = head.sign(&published.keys.signing(), 1).unwrap();
        note.encode().into_bytes()
    };
    let other = [7; 32];
    let forks = [300, published.size, 9000].map(|size| head(size, other));
    let now = fs::read(published.dir().join("checkpoint")).unwrap();
    let olders = forks.map(|note| (note, false));
    for (older, accepted) in olders.into_iter().chain([(now, true)]) {
        published.older = older;
        for (checker, verdict) in published.check() {
            assert_eq!(verdict.is_ok(), accepted, "{checker}: {verdict:?}");
        }
    }
    published.older = b"no checkpoint".to_vec();
    assert!(published.check().iter().all(|(_, v)| v.is_err()));
}

#[test]
fn a_checkpoint_with_another_root_is_refused_by_every_checker_though_it_is_signed() {
    let published = Published::new("root", &[300]);
    let origin = ORIGIN.to_owned();
    let (size, root) = (published.size, [7; 32]);
    let head = Checkpoint { origin, size, root };
    let note = head.sign(&published.keys.signing(), 1).unwrap().encode();
    fs::write(published.dir().join("checkpoint"), &note).unwrap();
    // Nothing older, which would differ as well.
    let verdicts = check_directory(&published.dir(), &published.keys.text(), None);
    assert!(verdicts.iter().all(|(_, v)| v.is_err()), "{verdicts:?}");
    let trust = published.keys.trust();
    let ours = verify_directory(&published.disk, "audit", Some(&trust), &mut |_| ());
    assert!(ours.is_err());
}

#[test]
fn a_missing_file_or_foreign_keys_are_caught_by_every_checker() {
    let published = Published::new("missing", &[300]);
    for file in ["checkpoint", "tile/0/000", "tile/entries/000"] {
        let path = published.dir().join(file);
        let good = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(published.refusers(), EVERYBODY, "{file}");
        fs::write(&path, good).unwrap();
    }
    let foreign = Keys::new(4).text();
    let verdicts = check_directory(&published.dir(), &foreign, None);
    assert!(verdicts.iter().all(|(_, v)| v.is_err()), "{verdicts:?}");
    let verdicts = check_directory(Path::new("nowhere"), &published.keys.text(), None);
    assert!(verdicts.iter().all(|(_, v)| v.is_err()), "{verdicts:?}");
}

// ------------------------------------------------------------------------------------- signatures

const MESSAGES: [&[u8]; 3] = [b"", b"a message", &[0xa5; 5000]];

fn signing_algorithms() -> impl Iterator<Item = Algorithm> {
    let all = Algorithm::ALL.into_iter();
    all.filter(|algorithm| algorithm.key_use() == Use::Sign)
}

fn new_key(algorithm: Algorithm) -> SigningKey {
    let secret = match algorithm {
        Algorithm::RsaPss3072 => SigningKey::generate_rsa(),
        _ => SigningKey::generate(algorithm, &mut |bytes| bytes.fill(0x42)),
    };
    SigningKey::from_secret(algorithm, &secret.unwrap()).unwrap()
}

/// Each part of a hybrid is a standard signature of its own.
#[test]
fn python_verifies_our_signatures_of_every_algorithm_and_no_altered_ones() {
    let mut python = Signatures::start().unwrap();
    for algorithm in signing_algorithms() {
        let key = new_key(algorithm);
        let spki = key.public().spki().unwrap();
        for message in MESSAGES {
            let signatures = key.sign(Input::Message(message)).unwrap();
            assert_eq!(signatures.len(), spki.len());
            for (signature, spki) in signatures.iter().zip(&spki) {
                let mut valid = |message: &[u8], bytes: &[u8]| {
                    let job = json!({
                        "job": "verify",
                        "alg": signature.algorithm.name(),
                        "spki": hex(spki),
                        "message": hex(message),
                        "signature": hex(bytes),
                    });
                    ask(&mut python, &job)["valid"].as_bool().unwrap()
                };
                assert!(valid(message, &signature.bytes), "{algorithm}");
                assert!(!valid(b"another", &signature.bytes), "{algorithm}");
                let mut altered = signature.bytes.clone();
                altered[9] ^= 1;
                assert!(!valid(message, &altered), "{algorithm}");
            }
        }
    }
}

#[test]
fn we_verify_pythons_signatures_of_every_algorithm_and_no_altered_ones() {
    let mut python = Signatures::start().unwrap();
    for algorithm in signing_algorithms() {
        for message in MESSAGES {
            let (mut raw, mut signatures) = (Vec::new(), Vec::new());
            for &part in algorithm.parts() {
                let job = json!({"job": "sign", "alg": part.name(), "message": hex(message)});
                let answer = ask(&mut python, &job);
                raw.extend(unhex(&answer["public"]));
                signatures.push(Signature {
                    algorithm: part,
                    bytes: unhex(&answer["signature"]),
                });
            }
            let public = PublicKey::from_raw(algorithm, &raw).unwrap();
            let verify = |message, signatures: &[Signature]| {
                public.verify(Input::Message(message), signatures).is_ok()
            };
            assert!(verify(message, &signatures), "{algorithm}");
            assert!(!verify(b"another", &signatures), "{algorithm}");
            for part in 0..signatures.len() {
                let mut altered = signatures.clone();
                altered[part].bytes[9] ^= 1;
                assert!(!verify(message, &altered), "{algorithm}");
            }
        }
    }
}

/// A key made there signs here, and there it verifies.
#[test]
fn keys_made_by_python_are_imported_and_are_the_same_keys() {
    let mut python = Signatures::start().unwrap();
    for algorithm in signing_algorithms().filter(|a| a.parts().len() == 1) {
        let job = json!({"job": "sign", "alg": algorithm.name(), "message": ""});
        let answer = ask(&mut python, &job);
        let secret = SigningKey::import_pkcs8(algorithm, &unhex(&answer["pkcs8"]))
            .unwrap_or_else(|error| panic!("{algorithm}: {error}"));
        let key = SigningKey::from_secret(algorithm, &secret).unwrap();
        assert_eq!(key.public().raw(), unhex(&answer["public"]), "{algorithm}");
        let signature = key.sign(Input::Message(b"ours")).unwrap().remove(0);
        let job = json!({
            "job": "verify",
            "alg": algorithm.name(),
            "spki": hex(&key.public().spki().unwrap()[0]),
            "message": hex(b"ours"),
            "signature": hex(&signature.bytes),
        });
        assert_eq!(ask(&mut python, &job)["valid"], true, "{algorithm}");
    }
}

#[test]
fn ed25519_dalek_makes_and_takes_the_very_same_signatures() {
    let seed = [0x42; 32];
    let (ours, theirs) = (
        new_key(Algorithm::Ed25519),
        ed25519_dalek::SigningKey::from_bytes(&seed),
    );
    assert_eq!(ours.public().raw(), theirs.verifying_key().as_bytes());
    for message in MESSAGES {
        let signature = ours.sign(Input::Message(message)).unwrap().remove(0);
        let their_signature = theirs.sign(message);
        assert_eq!(signature.bytes, their_signature.to_bytes());
        let verifying = theirs.verifying_key();
        assert!(verifying.verify(message, &their_signature).is_ok());
        let bytes = their_signature.to_bytes().to_vec();
        let signature = [Signature {
            algorithm: Algorithm::Ed25519,
            bytes,
        }];
        let verified = ours.public().verify(Input::Message(message), &signature);
        assert_eq!(verified, Ok(()));
    }
}

fn ask(python: &mut Signatures, job: &Value) -> Value {
    let answer = python.ask(&job.to_string()).unwrap();
    serde_json::from_str(&answer).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(value: &Value) -> Vec<u8> {
    let text = value.as_str().unwrap().as_bytes();
    let digit = |c: u8| (c as char).to_digit(16).unwrap() as u8;
    let pairs = text.as_chunks::<2>().0.iter();
    pairs.map(|[a, b]| digit(*a) * 16 + digit(*b)).collect()
}
