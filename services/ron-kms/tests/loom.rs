//! Every interleaving (up to a bound of preemptions) of what the service's tasks share.
//!
//! Run with `cargo test -p ron-kms --features loom --test loom --release`. The shipped machines and the
//! kernel's queue, snapshot and shutdown are stepped on loom's primitives; the tasks around them are
//! loom's threads, since Tokio's are not. A missed wake-up is a deadlock, which loom reports.
#![cfg(feature = "loom")]

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    task::{Context, Poll, Wake},
};

use loom::{
    sync::{
        Arc, Notify,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};
use ron_core::{DropOldest, Queue, RejectNew, Shutdown, SnapshotReader, snapshot, sync::Mutex};
use ron_kms::{
    audit::{
        frames,
        log::{Act, Admission, AuditLog, Limits, Policy as AuditPolicy, Submission},
        merkle::{Frontier, leaf_hash},
        record::{Action, Event, Operation, Outcome, Seq},
        recovery::{Recovery, Stored},
    },
    index::{Entry, Held, KeyIndex},
    keys::{Algorithm, Key, Kid, key::Policy},
};

/// Tries every schedule with at most this many preemptions: enough for every known race of this kind.
fn check(preemptions: usize, test: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(test);
}

struct Sleeper(Notify);

impl Wake for Sleeper {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.notify();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let sleeper = std::sync::Arc::new(Sleeper(Notify::new()));
    let waker = sleeper.clone().into();
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        sleeper.0.wait();
    }
}

// ------------------------------------------------------------------------------- rotate and sign

fn new_key(seed: u8) -> Key {
    let kid = Kid::random(&mut |buf: &mut [u8]| buf.fill(seed));
    let policy = Policy {
        min_version: 1,
        rotate_after_ms: None,
    };
    Key::create(kid, "t".into(), "p".into(), Algorithm::Aes256Gcm, policy, 0).unwrap()
}

/// Each version's secret says whose it is.
fn entry(key: &Key) -> Entry {
    let held = |n: &u32| Held::new(key, *n, n.to_be_bytes().to_vec(), Vec::new()).unwrap();
    let versions = key.versions().keys();
    let versions: BTreeMap<_, _> = versions.map(|n| (*n, held(n).into())).collect();
    Entry {
        key: key.clone(),
        tenant: key.tenant().into(),
        versions,
    }
}

/// What a signer reads: the newest version, and that it is whole.
fn read(index: &SnapshotReader<KeyIndex>, kid: &Kid) -> u32 {
    let index = index.load();
    let entry = index.get(kid).unwrap();
    let head = entry.key.newest();
    entry.key.may_wrap(head, 0).unwrap();
    assert_eq!(entry.versions.len() as u32, head);
    let held = entry.held(head).unwrap();
    assert_eq!(held.material.id, kid.version(head).unwrap());
    assert_eq!(held.material.sealed, head.to_be_bytes());
    head
}

// proves: KMS-10.4, KMS-4.2
#[test]
fn signers_see_versions_rise_and_no_torn_version_while_one_rotates() {
    check(3, || {
        let mut key = new_key(1);
        let kid = key.kid().clone();
        let (mut writer, index) = snapshot(KeyIndex::default().with(entry(&key)));
        let signers = [(); 2].map(|()| {
            let (index, kid) = (index.clone(), kid.clone());
            thread::spawn(move || {
                let first = read(&index, &kid);
                let second = read(&index, &kid);
                assert!(second >= first, "{first} then {second}");
            })
        });
        for _ in 0..2 {
            let head = key.rotate(0).unwrap();
            KeyIndex::publish_with(&mut writer, entry(&key));
            assert_eq!(read(&index, &kid), head);
        }
        for signer in signers {
            signer.join().unwrap();
        }
    });
}

// proves: KMS-10.4
#[test]
fn two_who_change_different_keys_lose_neither_change() {
    check(3, || {
        let keys = [new_key(1), new_key(2)];
        let start = keys
            .iter()
            .fold(KeyIndex::default(), |index, key| index.with(entry(key)));
        let (writer, index) = snapshot(start);
        // As the ring has it: the writer is behind the lock of the key metadata.
        let ring = Arc::new(Mutex::new(writer));
        let kids = [keys[0].kid().clone(), keys[1].kid().clone()];
        let changing = keys.map(|mut key| {
            let ring = ring.clone();
            thread::spawn(move || {
                key.rotate(0).unwrap();
                let entry = entry(&key);
                KeyIndex::publish_with(&mut ring.lock(), entry);
            })
        });
        let seen = kids.clone().map(|kid| read(&index, &kid));
        for change in changing {
            change.join().unwrap();
        }
        for (kid, seen) in kids.iter().zip(seen) {
            let now = read(&index, kid);
            assert!(now == 2 && seen <= now);
        }
    });
}

// --------------------------------------------------------------------------------- the audit log

/// The log's machine behind its lock, and the file below it.
struct Audit {
    log: Mutex<AuditLog>,
    file: Mutex<Vec<u8>>,
    /// Records that were acknowledged.
    durable: AtomicU64,
}

const LIMITS: Limits = Limits {
    reserve: 8,
    checkpoint_records: 1,
    checkpoint_interval_ms: 0,
    checkpoint_deadline_ms: 1,
    untold_max: u64::MAX,
};

impl Audit {
    fn new() -> Audit {
        let file = frames::encode_header([0; 16]);
        let mut recovery = Recovery::new(Stored::Absent);
        let (_, scan) = frames::scan(&file, |framed| recovery.record(&framed)).unwrap();
        let log = recovery.finish(&scan, AuditPolicy::Shed, LIMITS, 0).log;
        let audit = Audit {
            log: Mutex::new(log),
            file: Mutex::new(file),
            durable: AtomicU64::new(0),
        };
        // The first batch reserves numbers.
        audit.append(Vec::new());
        audit
    }

    /// As a signer does: a number, the use, the record into the queue.
    fn operate(&self, queue: &Queue<Submission, DropOldest>) -> Seq {
        let admitted = self.log.lock().admit(Action::Sign);
        let Ok(Admission::Numbered(seq)) = admitted else {
            panic!("{admitted:?}");
        };
        match queue.push(submission(seq)) {
            Ok(None) => {}
            Ok(Some(dropped)) => self.log.lock().handle_dropped(dropped.seq.unwrap()),
            Err(refused) => self.log.lock().handle_dropped(refused.item.seq.unwrap()),
        }
        seq
    }

    /// As the appender does: one batch, durable before it is acknowledged.
    fn append(&self, batch: Vec<Submission>) {
        let acts = self.log.lock().begin_append(0, batch);
        for act in acts {
            if let Act::Write { at, bytes } = act {
                let mut file = self.file.lock();
                assert_eq!(file.len() as u64, at, "no hole and nothing written over");
                file.extend(bytes.iter());
                drop(file);
                let mut log = self.log.lock();
                log.handle_appended();
                let size = log.size();
                drop(log);
                self.durable.store(size, Ordering::Release);
            }
        }
    }

    /// As the checkpointer does; what it signs covers all that was acknowledged before.
    fn checkpoint(&self) {
        let before = self.durable.load(Ordering::Acquire);
        let begun = self.log.lock().begin_checkpoint(0);
        let Some(Act::Publish { head, .. }) = begun else {
            panic!("records are there");
        };
        assert!(head.size >= before, "{} of {before}", head.size);
        let roots = self.read().1;
        assert_eq!(roots.get(head.size as usize), Some(&head.root));
        self.log.lock().handle_checkpointed(0);
    }

    /// What the file tells: numbers recorded or told as missing, and the root at each size.
    fn read(&self) -> (BTreeSet<Seq>, Vec<[u8; 32]>) {
        let file = self.file.lock().clone();
        let (mut told, mut frontier, mut next) = (BTreeSet::new(), Frontier::default(), 0);
        let mut roots = vec![frontier.root()];
        frames::scan(&file, |framed| {
            assert_eq!(framed.record.index, next, "the index has no gap");
            next += 1;
            frontier.push(leaf_hash(framed.bytes));
            roots.push(frontier.root());
            match framed.record.event {
                Event::Operation { seq, .. } => assert!(told.insert(seq)),
                Event::Gap { first, count, .. } => {
                    (first..first + count).for_each(|seq| assert!(told.insert(seq)));
                }
                _ => {}
            }
        })
        .unwrap();
        (told, roots)
    }
}

fn submission(seq: Seq) -> Submission {
    let operation = Operation {
        action: Action::Sign,
        tenant: "t".into(),
        kid: "k".into(),
        version: 1,
        alg: "ed25519".into(),
        actor: "a".into(),
        digests: Vec::new(),
        op_id: None,
    };
    Submission {
        ticket: 0,
        seq: Some(seq),
        event: Event::Operation {
            seq,
            operation,
            outcome: Outcome::Done,
        },
        attachment: Vec::new(),
    }
}

// proves: KMS-10.6
#[test]
fn the_index_has_no_gap_and_a_checkpoint_covers_all_appends_before_it() {
    check(2, || {
        let audit = Arc::new(Audit::new());
        // Too small for both: one may be dropped, and is then told as missing.
        let queue = Queue::new("audit", 1, DropOldest);
        let producers = [(); 2].map(|()| {
            let (audit, queue) = (audit.clone(), queue.clone());
            thread::spawn(move || audit.operate(&queue))
        });
        let checkpointer = thread::spawn({
            let audit = audit.clone();
            move || audit.checkpoint()
        });
        audit.append(queue.try_pop().into_iter().collect());
        let given = producers.map(|producer| producer.join().unwrap());
        audit.append(queue.try_pop().into_iter().collect());
        checkpointer.join().unwrap();
        audit.log.lock().close();
        audit.append(Vec::new());
        audit.checkpoint();
        let (told, _) = audit.read();
        assert_eq!(told, BTreeSet::from(given), "each number is told of once");
    });
}

// ---------------------------------------------------------------------------------------- the stop

// proves: KMS-10.5
#[test]
fn every_worker_sees_the_stop_and_what_was_accepted_is_in_the_closed_log() {
    check(2, || {
        let audit = Arc::new(Audit::new());
        let jobs: Queue<u8, RejectNew> = Queue::new("sign", 2, RejectNew);
        let records = Queue::new("audit", 2, DropOldest);
        let stop = Shutdown::new();
        let signer = thread::spawn({
            let (audit, jobs, records) = (audit.clone(), jobs.clone(), records.clone());
            move || {
                let mut done = BTreeSet::new();
                while block_on(jobs.pop()).is_some() {
                    done.insert(audit.operate(&records));
                }
                done
            }
        });
        let appender = thread::spawn({
            let (audit, records) = (audit.clone(), records.clone());
            move || {
                while let Some(record) = block_on(records.pop()) {
                    audit.append(vec![record]);
                }
                audit.log.lock().close();
                audit.append(Vec::new());
            }
        });
        let checkpointer = thread::spawn({
            let stop = stop.clone();
            move || block_on(stop.wait())
        });
        let accepted = (0..2).filter(|job| jobs.push(*job).is_ok()).count();
        // The phases of the drain, in order.
        stop.trigger();
        jobs.close();
        let done = signer.join().unwrap();
        assert_eq!(done.len(), accepted, "accepted is finished");
        records.close();
        appender.join().unwrap();
        checkpointer.join().unwrap();
        audit.checkpoint();
        assert!(audit.log.lock().is_closed());
        assert_eq!(audit.read().0, done);
    });
}
