//! The configuration: every key with its default, range and unit; what contradicts itself is refused.

use std::{net::SocketAddr, time::Duration};

use ron_core::{
    admission::{InflateLimits, Limits as AdmissionLimits},
    app::{AppSettings, ReloadConfig, TlsConfig, caller_rules},
    auth::AuthConfig,
    config::{Broken, Secret},
    serve::HttpConfig,
};

use crate::audit::log::{Limits, Policy};

ron_core::choices! {
    /// Who keeps the secrets.
    pub enum BackendKind { Software = "software", Memory = "memory", Pkcs11 = "pkcs11" }
}

ron_core::choices! {
    /// What happens to the audit record of an operation under pressure.
    pub enum AuditPolicy { Shed = "shed", Strict = "strict" }
}

ron_core::settings! {
    /// How the audit log is kept.
    pub struct AuditConfig {
        /// `shed`: answers do not wait, losses are counted in the log. `strict`: no answer without its durable record.
        policy: AuditPolicy = AuditPolicy::Shed, restart;
        /// The log's name, in its checkpoints and keys.
        origin: String = "localhost/ron-kms".to_owned(), restart;
        /// Events that may wait to be written.
        queue_cap: usize = 2_048 => 1..=65_536, restart;
        /// How long an event waits for room before the oldest one is dropped.
        queue_wait_ms: u64 = 200 => 1..=10_000, restart;
        /// A batch that takes longer counts as a timeout.
        append_deadline_ms: u64 = 200 => 1..=60_000, restart;
        /// Most events in one batch.
        batch_max: usize = 512 => 1..=65_536, restart;
        /// A checkpoint is due after so many records.
        checkpoint_every_ops: u64 = 32_768 => 1..=1_000_000, restart;
        /// A checkpoint is due after so long, if there are new records.
        checkpoint_interval_ms: u64 = 1_000 => 10..=3_600_000, restart;
        /// A checkpoint that takes longer turns readiness off.
        checkpoint_deadline_ms: u64 = 1_000 => 1..=60_000, restart;
        /// With so many operations whose record was lost and that the log could not yet tell of (`shed`), keys are not used: 503 `audit_unavailable`.
        shed_max_ops: u64 = 1_024 => 1..=1_000_000, restart;
        /// Operation numbers reserved at a time (`shed`): the most that a crash can leave untold.
        reserve_ops: u64 = 8_192 => 16..=1_000_000, restart;
        /// Set aside on the disk, so that one that is full takes the last checkpoint: as much as the records of `checkpoint_every_ops`.
        disk_reserve_bytes: u64 = 16_777_216 => 65_536..=1_073_741_824, restart;
    }
}

ron_core::settings! {
    /// Deadlines of operations.
    pub struct DeadlineConfig {
        /// Sign, from the queue to the signature.
        sign_ms: u64 = 2_000 => 1..=60_000, restart;
        /// Wrap and data-key.
        wrap_ms: u64 = 2_000 => 1..=60_000, restart;
        /// Unwrap.
        unwrap_ms: u64 = 2_000 => 1..=60_000, restart;
        /// Creating, rotating, importing and destroying keys.
        rotate_ms: u64 = 10_000 => 1..=60_000, restart;
        /// One renewal of the attestation evidence, and one statement about a key.
        attest_ms: u64 = 3_000 => 1..=60_000, restart;
        /// One check of the backend.
        check_ms: u64 = 1_000 => 1..=60_000, restart;
    }
}

ron_core::settings! {
    /// Verifying from the key index.
    pub struct VerifyConfig {
        /// How old the index may be while the backend is out.
        cache_ttl_ms: u64 = 300_000 => 1..=86_400_000;
        /// Time between two refreshes.
        refresh_ms: u64 = 1_000 => 10..=3_600_000, restart;
        /// Tries of a refresh that a request waits for.
        retry_max: u32 = 2 => 1..=10, restart;
        /// Least wait before the second try.
        retry_min_ms: u64 = 50 => 1..=10_000, restart;
        /// Most wait before the second try.
        retry_max_ms: u64 = 100 => 1..=10_000, restart;
        /// No wait is longer.
        retry_cap_ms: u64 = 1_000 => 1..=60_000, restart;
    }
}

ron_core::settings! {
    /// A PKCS#11 token.
    pub struct Pkcs11Config {
        /// The vendor's library.
        module: String = String::new(), restart;
        /// The token's label.
        token: String = String::new(), restart;
        /// The user's PIN.
        pin: Secret = Secret::default(), restart;
        /// Sessions held open; each serves one call at a time.
        sessions: usize = 4 => 1..=64, restart;
    }
}

ron_core::settings! {
    /// How the key store is sealed (used by the binary).
    pub struct StoreConfig {
        /// File with the key-encryption key (32 bytes, mode 0600); made at the first start. Empty for a passphrase.
        key_file: String = "kek.key".to_owned(), restart;
        /// Passphrase instead of a key file.
        passphrase: Secret = Secret::default(), restart;
    }
}

ron_core::settings! {
    /// What a request may ask of the service.
    pub struct IngressConfig {
        /// Deadline of a request that names none.
        timeout_secs: u64 = 5 => 1..=300, restart;
        /// Requests served at once; more are answered 429.
        max_inflight: usize = 2_048 => 1..=65_536, restart;
        /// Requests let in per second; more are answered 429. 0 for no limit.
        rps_limit: u32 = 0 => 0..=1_000_000, restart;
        /// Largest request body; more is answered 413.
        body_bytes: u64 = 1_048_576 => 1..=1_048_576, restart;
        /// How many times its size a compressed body may expand to.
        decompress_max_ratio: u32 = 10 => 1..=1_000, restart;
    }
}

ron_core::settings! {
    /// Everything that can be set.
    pub struct Config {
        /// Where to listen.
        bind: SocketAddr = ([127, 0, 0, 1], 7480).into(), restart;
        /// Where keys and the audit log are kept.
        data_dir: String = "ron-kms-data".to_owned(), restart;
        /// Who keeps the secrets.
        backend: BackendKind = BackendKind::Software, restart;
        /// Tasks that use keys.
        signers: u32 = 4 => 1..=256, restart;
        /// Operations that may wait for a signer; one more is answered 429.
        queue_cap: usize = 512 => 1..=65_536, restart;
        /// Operations one tenant may have in flight; one more is answered 429.
        tenant_inflight: usize = 256 => 1..=65_536, restart;
        /// Keys kept at most.
        max_keys: usize = 10_000 => 1..=1_000_000, restart;
        /// The shortest `rotate_after_ms` that a key's policy may have.
        rotate_after_min_ms: u64 = 60_000 => 1..=86_400_000;
        /// What queued and running operations may take when the process is asked to stop.
        drain_deadline_ms: u64 = 3_000 => 1..=600_000, restart;
        /// Time between two renewals of the attestation evidence.
        attest_interval_ms: u64 = 60_000 => 10..=86_400_000, restart;
        /// Nonces of a key version reserved at a time: the most that a crash skips.
        nonce_range: u32 = 1_024 => 1..=1_048_576, restart;
        /// Results kept for callers who repeat an `op_id`; the tenant that holds most makes room.
        op_id_results: usize = 65_536 => 1..=1_000_000, restart;
        /// Bytes of those results.
        op_id_bytes: usize = 67_108_864 => 1..=1_073_741_824, restart;
        /// `POST /api/v1/reload` and `/shutdown` exist.
        admin: bool = false, restart;
        audit: AuditConfig;
        deadline: DeadlineConfig;
        verify: VerifyConfig;
        http: HttpConfig;
        ingress: IngressConfig;
        auth: AuthConfig;
        tls: TlsConfig;
        reload: ReloadConfig;
        store: StoreConfig;
        pkcs11: Pkcs11Config;
    }
}

impl AppSettings for Config {
    fn rules(&self) -> Vec<Broken> {
        let mut broken = self.tls.rules();
        broken.extend(caller_rules(&self.auth, self.bind));
        broken.extend(self.http.rules());
        let mut say = |key, reason: String| broken.push(Broken { key, reason });
        if self.data_dir.is_empty() {
            say("data_dir", "must name a directory".into());
        }
        if self.backend == BackendKind::Pkcs11 {
            for (key, value) in [
                ("pkcs11.module", &self.pkcs11.module),
                ("pkcs11.token", &self.pkcs11.token),
            ] {
                if value.is_empty() {
                    say(key, "must be set when backend = \"pkcs11\"".into());
                }
            }
        }
        let origin = &self.audit.origin;
        if origin.is_empty() || origin.len() > 255 || origin.contains([' ', '+', '\n']) {
            let reason = "a name of 1 to 255 bytes without spaces or plus signs is allowed";
            say("audit.origin", reason.into());
        }
        if self.store.key_file.is_empty() && self.store.passphrase.reveal().is_empty() {
            say(
                "store.key_file",
                "a key file or a passphrase is needed".into(),
            );
        }
        broken
    }

    fn data_dir(&self) -> Option<&str> {
        (self.backend != BackendKind::Memory).then_some(&*self.data_dir)
    }

    fn binds(&self) -> Vec<SocketAddr> {
        vec![self.bind]
    }

    ron_core::app_sections!(admin);
}

impl Config {
    pub fn audit_policy(&self) -> Policy {
        match self.audit.policy {
            AuditPolicy::Shed => Policy::Shed,
            AuditPolicy::Strict => Policy::Strict,
        }
    }

    pub fn audit_limits(&self) -> Limits {
        Limits {
            reserve: self.audit.reserve_ops,
            checkpoint_records: self.audit.checkpoint_every_ops,
            checkpoint_interval_ms: self.audit.checkpoint_interval_ms,
            checkpoint_deadline_ms: self.audit.checkpoint_deadline_ms,
            untold_max: self.audit.shed_max_ops,
        }
    }

    pub fn admission(&self) -> AdmissionLimits {
        let ingress = &self.ingress;
        AdmissionLimits {
            timeout: Duration::from_secs(ingress.timeout_secs),
            max_in_flight: ingress.max_inflight,
            rate_per_s: (ingress.rps_limit > 0).then_some(ingress.rps_limit),
            body_cap: ingress.body_bytes,
            body_timeout: Duration::from_secs(ingress.timeout_secs),
            inflate: InflateLimits {
                max_ratio: ingress.decompress_max_ratio,
                max_bytes: ingress.body_bytes,
            },
        }
    }

    pub fn drain_deadline(&self) -> Duration {
        Duration::from_millis(self.drain_deadline_ms)
    }
}
