//! A log directory as the service writes it, for tests: the machine of the audit log, its acts done on a disk.
//!
//! Single steps instead of tasks, so that a test can stop anywhere: crash, damage a file, open again.

#![allow(
    dead_code,
    reason = "each test file that includes this uses a part of it"
)]

use aws_lc_rs::signature::{Ed25519KeyPair, ML_DSA_44_SIGNING, PqdsaKeyPair};
use ron_core::seam::{Disk, Open};
use ron_kms::audit::{
    checkpoint::{Checkpoint, SigningKeys, Trust},
    frames,
    log::{Act, Admission, AuditLog, Limits, Policy, Submission},
    merkle::prove_inclusion,
    receipt::Receipt,
    record::{Action, Event, Operation, Outcome, Record},
    recovery::{Recovery, Stored},
    tiles::{Kind, Tile, TileNodes, parse_entries},
};

pub const ORIGIN: &str = "example.com/kms";
pub const LIMITS: Limits = Limits {
    reserve: 512,
    checkpoint_records: 1024,
    checkpoint_interval_ms: 1000,
    checkpoint_deadline_ms: 1000,
    untold_max: 1_024,
};

pub struct Keys {
    pub ed25519: Ed25519KeyPair,
    pub ml_dsa_44: PqdsaKeyPair,
}

impl Keys {
    pub fn new(seed: u8) -> Keys {
        Keys {
            ed25519: Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap(),
            ml_dsa_44: PqdsaKeyPair::from_seed(&ML_DSA_44_SIGNING, &[seed; 32]).unwrap(),
        }
    }

    pub fn signing(&self) -> SigningKeys<'_> {
        SigningKeys {
            ed25519: &self.ed25519,
            ml_dsa_44: &self.ml_dsa_44,
        }
    }

    pub fn trust(&self) -> Trust {
        Trust {
            origin: ORIGIN.into(),
            keys: self.signing().verifiers(ORIGIN).unwrap(),
        }
    }

    /// As the service keeps them, a line each.
    pub fn text(&self) -> String {
        let keys = self.trust().keys;
        keys.iter().map(|key| key.encode() + "\n").collect()
    }
}

/// A log that is open.
pub struct Writer<'a> {
    pub disk: &'a dyn Disk,
    pub dir: &'a str,
    pub keys: &'a Keys,
    pub log: AuditLog,
    pub now_s: u64,
}

impl<'a> Writer<'a> {
    /// Makes the directory, or opens it as after a crash or an orderly end.
    pub fn open(disk: &'a dyn Disk, dir: &'a str, keys: &'a Keys, policy: Policy) -> Writer<'a> {
        disk.create_dir(dir).unwrap();
        let path = |name: &str| format!("{dir}/{name}");
        let stored = match disk.identity(&path("checkpoint")).unwrap() {
            None => Stored::Absent,
            Some(_) => {
                let verified = keys.trust().verify(&read(disk, &path("checkpoint")));
                Stored::Verified(verified.unwrap().checkpoint)
            }
        };
        if disk.identity(&path("log")).unwrap().is_none() {
            write(disk, &path("log"), &frames::encode_header([5; 16]));
            write(disk, &path("keys.txt"), keys.text().as_bytes());
        }
        let mut recovery = Recovery::new(stored);
        let bytes = read(disk, &path("log"));
        let (_, scan) = frames::scan(&bytes, |framed| recovery.record(&framed)).unwrap();
        let recovered = recovery.finish(&scan, policy, LIMITS, 0);
        assert_eq!(recovered.log.mismatch(), None);
        if let Some(len) = recovered.truncate {
            let log = disk.open(&path("log"), Open::Existing).unwrap();
            log.set_len(len).unwrap();
        }
        let mut writer = Writer {
            disk,
            dir,
            keys,
            log: recovered.log,
            now_s: 1_700_000_000,
        };
        writer.append(vec![]);
        writer
    }

    pub fn append(&mut self, events: Vec<Submission>) {
        self.now_s += 1;
        for act in self.log.begin_append(self.now_s * 1000, events) {
            let Act::Write { at, bytes } = act else {
                panic!("{act:?}");
            };
            let path = format!("{}/log", self.dir);
            let log = self.disk.open(&path, Open::Existing).unwrap();
            log.write_at(at, &bytes).unwrap();
        }
        self.log.handle_appended();
    }

    /// Takes numbers for `n` uses of a key (policy shed).
    pub fn admit(&mut self, n: usize) -> Vec<u64> {
        let take = |log: &mut AuditLog| match log.admit(Action::Sign) {
            Ok(Admission::Numbered(seq)) => seq,
            other => panic!("not admitted: {other:?}"),
        };
        (0..n).map(|_| take(&mut self.log)).collect()
    }

    /// `n` uses of a key, recorded in batches.
    pub fn operate(&mut self, n: usize) {
        let mut left = n;
        while left > 0 {
            let some = left.min(100);
            let batch = self.admit(some);
            self.append(batch.into_iter().map(used).collect());
            left -= some;
        }
    }

    pub fn checkpoint(&mut self) {
        let Some(Act::Publish { head, files }) = self.log.begin_checkpoint(self.now_s) else {
            panic!("nothing to cover");
        };
        for file in files {
            write(
                self.disk,
                &format!("{}/{}", self.dir, file.tile),
                &file.bytes,
            );
        }
        self.sign(Checkpoint {
            origin: ORIGIN.into(),
            size: head.size,
            root: head.root,
        });
        self.log.handle_checkpointed(self.now_s);
    }

    pub fn sign(&self, checkpoint: Checkpoint) {
        let note = checkpoint.sign(&self.keys.signing(), self.now_s).unwrap();
        let path = format!("{}/checkpoint", self.dir);
        write(self.disk, &path, note.encode().as_bytes());
    }

    pub fn close(mut self) {
        self.log.close();
        self.append(vec![]);
        assert!(self.log.is_closed());
        self.checkpoint();
    }

    /// The receipt of an entry under the stored checkpoint; it carries the entry.
    pub fn receipt(&self, index: u64) -> Receipt {
        let size = self.log.covered();
        let bundle = Tile::holding(Kind::Entries, index, size).unwrap();
        let bytes = read(self.disk, &format!("{}/{bundle}", self.dir));
        let entries = parse_entries(bundle.width(), &bytes).unwrap();
        let nodes = TileNodes {
            size,
            read: |tile: &Tile| Some(read(self.disk, &format!("{}/{tile}", self.dir))),
        };
        let note = read(self.disk, &format!("{}/checkpoint", self.dir));
        Receipt {
            extra: Some(entries[(index % 256) as usize].to_vec()),
            index,
            path: prove_inclusion(index, size, &nodes).unwrap(),
            checkpoint: String::from_utf8(note).unwrap(),
        }
    }
}

pub fn used(seq: u64) -> Submission {
    submission(
        Some(seq),
        Event::Operation {
            seq,
            operation: operation(),
            outcome: Outcome::Done,
        },
    )
}

pub fn submission(seq: Option<u64>, event: Event) -> Submission {
    Submission {
        ticket: 0,
        seq,
        event,
        attachment: Vec::new(),
    }
}

pub fn operation() -> Operation {
    Operation {
        action: Action::Sign,
        tenant: "acme".into(),
        kid: "k1".into(),
        version: 1,
        alg: "ed25519".into(),
        actor: "alice".into(),
        digests: vec![[0xab; 32]],
        op_id: None,
    }
}

/// Any records at all, under a checkpoint that is signed in order: what a dishonest service could publish.
pub fn write_records(disk: &dyn Disk, dir: &str, keys: &Keys, events: Vec<Event>) {
    use ron_kms::audit::{merkle::Frontier, publish::Edge};

    let (mut edge, mut frontier) = (Edge::default(), Frontier::default());
    let mut batch = frames::Batch::new(0);
    for (index, event) in (0..).zip(events) {
        let record = Record {
            index,
            at_ms: index,
            event,
        };
        batch.push(&record, &[]).unwrap();
    }
    for leaf in batch.records() {
        frontier.push(edge.push(leaf).unwrap());
    }
    disk.create_dir(dir).unwrap();
    let header = frames::encode_header([5; 16]);
    write(
        disk,
        &format!("{dir}/log"),
        &[&header, batch.bytes()].concat(),
    );
    write(disk, &format!("{dir}/keys.txt"), keys.text().as_bytes());
    for file in edge.pending().unwrap() {
        write(disk, &format!("{dir}/{}", file.tile), &file.bytes);
    }
    let head = Checkpoint {
        origin: ORIGIN.into(),
        size: frontier.size(),
        root: frontier.root(),
    };
    let note = head.sign(&keys.signing(), 1).unwrap().encode();
    write(disk, &format!("{dir}/checkpoint"), note.as_bytes());
}

pub fn read(disk: &dyn Disk, path: &str) -> Vec<u8> {
    let file = disk.open(path, Open::Existing).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    let (mut at, len) = (0, bytes.len());
    while at < len {
        at += file.read_at(at as u64, &mut bytes[at..]).unwrap();
    }
    bytes
}

pub fn write(disk: &dyn Disk, path: &str, bytes: &[u8]) {
    if let Some((parent, _)) = path.rsplit_once('/') {
        disk.create_dir(parent).unwrap();
    }
    let file = disk.open(path, Open::Create).unwrap();
    file.set_len(0).unwrap();
    file.write_at(0, bytes).unwrap();
}

/// Changes one bit of the file, there and back.
pub fn flip(disk: &dyn Disk, path: &str, at: usize) {
    let file = disk.open(path, Open::Existing).unwrap();
    let mut byte = [0];
    file.read_at(at as u64, &mut byte).unwrap();
    file.write_at(at as u64, &[byte[0] ^ 0x10]).unwrap();
}
