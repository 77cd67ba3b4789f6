//! Attestation: signed statements about what keeps a key, and the evidence that goes with answers.
//!
//! A statement is canonical JSON, signed by the service's own Ed25519 key: what is in it is what was true
//! when it was made. The refresher renews the general evidence; a failed renewal closes the gate.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use aws_lc_rs::{
    digest,
    signature::{Ed25519KeyPair, KeyPair},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as B64};
use ron_core::{
    backoff::Backoff,
    lock::{LockDecl, RankedMutex},
    readiness::Gate,
    snapshot::{SnapshotReader, SnapshotWriter, snapshot},
    supervisor::TaskContext,
};
use serde::Serialize;

use crate::{
    ask::Caller,
    audit::record::{Action, Event, Operation, Outcome},
    engine::Engine,
    error::KmsError,
    index::{Entry, Held},
    keystore::Identity,
};

pub const EVIDENCE_LOCK: LockDecl = LockDecl {
    name: "attestation",
    rank: 7,
    guards: "the writer of the attestation evidence",
};

/// A signed statement about a key: what holds it, and whether it can be taken out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attestation {
    /// Canonical JSON; these bytes are signed.
    pub statement: String,
    pub signature: Vec<u8>,
    /// The Ed25519 public key that verifies it.
    pub public: Vec<u8>,
}

pub struct Attester {
    pair: Ed25519KeyPair,
    evidence: SnapshotReader<Option<String>>,
    writer: RankedMutex<SnapshotWriter<Option<String>>>,
    pub gate: Gate,
}

#[derive(Serialize)]
struct Statement<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    at_ms: u64,
    backend: &'a str,
    extractable: bool,
    log: &'a str,
    log_size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<KeyStatement<'a>>,
}

#[derive(Serialize)]
struct KeyStatement<'a> {
    kid: String,
    alg: &'a str,
    /// SHA-256 over the raw public key, hex; empty for a key without one.
    public_sha256: String,
    nonce: String,
}

impl Attester {
    pub fn new(identity: &Identity, gate: Gate) -> Result<Attester, KmsError> {
        let bad = |_| KmsError::Store("the attestation key is damaged".into());
        let pair = Ed25519KeyPair::from_seed_unchecked(identity.attestation_seed.expose());
        let (writer, evidence) = snapshot(None);
        Ok(Attester {
            pair: pair.map_err(bad)?,
            evidence,
            writer: RankedMutex::new(EVIDENCE_LOCK, writer),
            gate,
        })
    }

    /// The newest evidence, as JSON.
    pub fn evidence(&self) -> Option<String> {
        (*self.evidence.load()).clone()
    }

    fn sign(&self, statement: &Statement<'_>) -> Result<Attestation, KmsError> {
        let text = serde_json::to_string(statement)
            .map_err(|error| KmsError::Invalid(error.to_string()))?;
        let signature = self.pair.sign(text.as_bytes()).as_ref().to_vec();
        Ok(Attestation {
            statement: text,
            signature,
            public: self.pair.public_key().as_ref().to_vec(),
        })
    }
}

impl Attestation {
    /// As it goes into answers.
    pub fn to_json(&self) -> String {
        serde_json::json!({
            "statement": self.statement,
            "sig": B64.encode(&self.signature),
            "public": B64.encode(&self.public),
        })
        .to_string()
    }
}

impl Engine {
    /// A statement about one key, recorded like any use.
    pub(crate) async fn attest(
        self: &Arc<Self>,
        caller: &Caller,
        entry: &Entry,
        held: &Held,
        nonce: &[u8],
        deadline: Instant,
    ) -> Result<Attestation, KmsError> {
        let info = self.backend.info();
        let public = match held.public_raw.is_empty() {
            true => String::new(),
            false => hex(digest::digest(&digest::SHA256, &held.public_raw).as_ref()),
        };
        let key = KeyStatement {
            kid: held.material.id.to_string(),
            alg: held.material.algorithm.name(),
            public_sha256: public,
            nonce: B64.encode(nonce),
        };
        let attestation =
            self.attester
                .sign(&self.statement(info.name, info.extractable, Some(key)))?;
        let mut hash = [0; 32];
        hash.copy_from_slice(digest::digest(&digest::SHA256, nonce).as_ref());
        let operation = Operation {
            action: Action::Attest,
            tenant: entry.key.tenant().to_owned(),
            kid: entry.key.kid().as_str().to_owned(),
            version: held.material.id.version(),
            alg: held.material.algorithm.name().to_owned(),
            actor: caller.actor.clone(),
            digests: vec![hash],
            op_id: None,
        };
        self.recorded(operation, deadline, async || Ok(attestation))
            .await
    }

    fn statement<'a>(
        &'a self,
        backend: &'a str,
        extractable: bool,
        key: Option<KeyStatement<'a>>,
    ) -> Statement<'a> {
        Statement {
            kind: "ron-kms/attestation@1",
            at_ms: self.env.wall_ms(),
            backend,
            extractable,
            log: self.auditor.origin(),
            log_size: self.auditor.note().size,
            key,
        }
    }

    /// A use of a key without a result to keep: admitted, done, recorded.
    async fn recorded<T>(
        self: &Arc<Self>,
        operation: Operation,
        deadline: Instant,
        work: impl AsyncFnOnce() -> Result<T, KmsError>,
    ) -> Result<T, KmsError> {
        let number = self.auditor.admit_by(operation.action, deadline).await?;
        let (number, event) = match number {
            Some(number) => {
                let (seq, outcome) = (number.seq(), Outcome::Done);
                let event = Event::Operation {
                    seq,
                    operation,
                    outcome,
                };
                (number, event)
            }
            None => {
                let intent = Event::Intent { seq: 0, operation };
                let recorded = self.auditor.record(None, intent, Vec::new()).await;
                let seq = recorded.map_err(KmsError::NotRecorded)?.seq;
                let outcome = Outcome::Done;
                let number = crate::auditor::Number::of_intent(&self.auditor, seq);
                (number, Event::Outcome { seq, outcome })
            }
        };
        let result = work().await?;
        let recorded = self.auditor.record(Some(number), event, Vec::new()).await;
        recorded.map_err(KmsError::NotRecorded)?;
        Ok(result)
    }
}

/// After a renewal that failed: sooner than the next one is due, so that the gate is not closed for long.
const RETRY: Backoff = Backoff::band(
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(5),
);

/// The refresher: renews the evidence until it is told to stop.
pub(crate) async fn run(engine: Arc<Engine>, interval: Duration, context: TaskContext) {
    let mut rng = context.env.rng();
    let mut failures = 0;
    loop {
        let renewed = tokio::select! {
            biased;
            () = context.stop.wait() => return,
            renewed = renew(&engine) => renewed,
        };
        let pause = match renewed {
            true => {
                failures = 0;
                interval
            }
            false => {
                failures += 1;
                engine.metrics.backoff_retries.with(&["attest"]).inc();
                RETRY.delay(failures - 1, &mut rng).min(interval)
            }
        };
        tokio::select! {
            biased;
            () = context.stop.wait() => return,
            () = context.env.sleep(pause) => {}
        }
    }
}

/// True if there is new evidence.
async fn renew(engine: &Arc<Engine>) -> bool {
    let limit = Duration::from_millis(engine.config.load().deadline.attest_ms);
    let info = engine.backend.info();
    let checked = engine.env.timeout(limit, engine.backend.check()).await;
    let why = match checked {
        Ok(Ok(())) => {
            let statement = engine.statement(info.name, info.extractable, None);
            match engine.attester.sign(&statement) {
                Ok(attestation) => {
                    let evidence = Some(attestation.to_json());
                    engine.attester.writer.lock().publish(evidence);
                    engine.attester.gate.open();
                    return true;
                }
                Err(error) => error.to_string(),
            }
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => {
            engine.metrics.io_timeouts.with(&["attest"]).inc();
            "the attestation evidence could not be renewed in time".to_owned()
        }
    };
    engine.attester.gate.close(why);
    false
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
