//! `ron-kms serve`: opens what it needs, says where it listens and where its data lies, and drains at the end.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use ron_core::{Env, app::Start, auth::AuthMode};
use ron_io::{
    Fatal,
    cli::{ConfigArgs, Launch, serve},
    say,
};

use super::{PROGRAM, unlock};
use crate::{
    backend::{Backend, memory::MemoryBackend, software::SoftwareBackend},
    config::{AuditPolicy, BackendKind, Config},
    keystore::{KeyStore, StoreError},
    service::{Ended, Found, Options, Service},
};

/// How long the greeting waits for a log that can be verified, once a checkpoint is due.
const FIRST_CHECKPOINT: Duration = Duration::from_secs(1);

pub fn run(args: &ConfigArgs) -> ExitCode {
    serve(&PROGRAM, args, start)
}

async fn start(launch: Launch<Config>) -> Result<(), Fatal> {
    let Launch {
        env,
        bus,
        live,
        mut listeners,
        tls,
        stop,
    } = launch;
    let config = live.current();
    let listener = listeners.remove(0);
    let addr = listener.local_addr().unwrap_or(config.bind);
    // A token that cannot be reached leaves no store behind.
    let token = match config.backend {
        BackendKind::Pkcs11 => Some(pkcs11(&env, &config).await?),
        _ => None,
    };
    let store = open_store(&env, &config).await?;
    let backend = token.unwrap_or_else(|| match config.backend {
        BackendKind::Memory => Arc::new(MemoryBackend::new(&env)),
        _ => Arc::new(SoftwareBackend::new(&env, store.kek())),
    });
    let start = Start {
        tls,
        ..Start::live(env.clone(), bus, &live)
    };
    let service = Service::open(Options {
        start,
        store,
        backend,
    })
    .await
    .map_err(|error| Fatal::Failed(error.to_string()))?;
    let url = format!("{}://{addr}", config.tls.scheme());
    say!("ron-kms {} listens on {url}", PROGRAM.version);
    let (found, kms) = (service.found.clone(), service.kms());
    let wait = Duration::from_millis(config.audit.checkpoint_interval_ms) + FIRST_CHECKPOINT;
    env.launch(
        "greeting",
        Box::pin(async move {
            // So that the lines it prints hold when somebody types them.
            let records = kms.first_checkpoint(wait).await;
            greet(&config, &url, &found, records);
        }),
    );
    farewell(&service.run(listener, stop, |_| {}).await)
}

async fn open_store(env: &Env, config: &Config) -> Result<KeyStore, Fatal> {
    if config.backend == BackendKind::Memory {
        return KeyStore::memory(env).map_err(|error| Fatal::Failed(error.to_string()));
    }
    let unlock = unlock::unlock(env, config)?;
    KeyStore::open(env, unlock)
        .await
        .map_err(|error| match error {
            StoreError::Locked
            | StoreError::WrongKey
            | StoreError::Newer { .. }
            | StoreError::Damaged(_) => Fatal::Config(format!("{}: {error}", config.data_dir)),
            other => Fatal::Failed(format!("{}: {other}", config.data_dir)),
        })
}

#[cfg(feature = "pkcs11")]
async fn pkcs11(env: &Env, config: &Config) -> Result<Arc<dyn Backend>, Fatal> {
    use crate::backend::pkcs11::{Pkcs11Backend, Pkcs11Config, TokenName};
    let token = Pkcs11Config {
        module: config.pkcs11.module.clone().into(),
        token: TokenName::Label(config.pkcs11.token.clone()),
        pin: crate::keys::Secret::copy_of(config.pkcs11.pin.reveal().as_bytes()),
        sessions: config.pkcs11.sessions,
    };
    let connected = Pkcs11Backend::connect(env, token).await;
    match connected {
        Ok(backend) => Ok(Arc::new(backend)),
        Err(error) => Err(Fatal::Failed(format!("pkcs11: {error}"))),
    }
}

#[cfg(not(feature = "pkcs11"))]
fn pkcs11(_: &Env, _: &Config) -> std::future::Ready<Result<Arc<dyn Backend>, Fatal>> {
    std::future::ready(Err(Fatal::Config(
        "this program was built without the feature `pkcs11`".into(),
    )))
}

fn greet(config: &Config, url: &str, found: &Found, records: u64) {
    if config.backend == BackendKind::Memory {
        say!("data     in memory: all is gone when it stops");
    } else {
        let dir = data_dir(config);
        say!("data     {} ({} keys)", dir.display(), found.keys);
        say!(
            "audit    {records} records, policy {}; check it with: ron-kms audit verify {}",
            config.audit.policy.name(),
            dir.join("audit").display()
        );
    }
    for key in &found.verifier_keys {
        let short: String = key.chars().take(96).collect();
        let more = if short.len() < key.len() { "..." } else { "" };
        say!("log key  {short}{more}");
    }
    if found.missing_at_most > 0 {
        say!("note     {}", unclean_end(config, found));
    }
    if let Some(why) = &found.mismatch {
        say!("WARNING  no key is used: {why}");
    }
    // Somebody else signs the tokens: where one goes is all that can be told.
    let token = match config.auth.mode {
        AuthMode::Passport => " -H \"authorization: Bearer $TOKEN\"",
        AuthMode::None | AuthMode::Ingress => "",
    };
    let json = format!("{token} -H 'content-type: application/json'");
    say!("try      KID=$(curl -s {url}/v1/kms/keys{json} \\");
    say!(
        "           -d '{{\"purpose\":\"demo\",\"alg\":\"ed25519\"}}' | sed 's/.*\"kid\":\"\\([^\"#]*\\).*/\\1/')"
    );
    say!("         SIGNED=$(curl -s {url}/v1/kms/sign{json} \\");
    say!(
        "           -d \"{{\\\"kid\\\":\\\"$KID\\\",\\\"message\\\":\\\"aGVsbG8\\\",\\\"op_id\\\":\\\"$KID\\\"}}\"); echo \"$SIGNED\""
    );
    if config.backend != BackendKind::Memory {
        let keys = data_dir(config).join("audit/keys.txt");
        say!("         INDEX=$(echo \"$SIGNED\" | sed 's/.*\"index\":\\([0-9]*\\).*/\\1/')");
        // A record is provable once a checkpoint covers it.
        let wait = config.audit.checkpoint_interval_ms.div_ceil(1_000) + 1;
        say!(
            "         sleep {wait}; curl -s {url}/v1/kms/audit/proof/$INDEX{token} -o receipt.txt"
        );
        say!(
            "         ron-kms audit receipt verify receipt.txt --key {}",
            keys.display()
        );
    }
}

/// What is known of an end that was not in order, and what is only bounded.
fn unclean_end(config: &Config, found: &Found) -> String {
    // What was answered and not yet written was in the queue or in the batch in hand.
    let unwritten = (config.audit.queue_cap + config.audit.batch_max) as u64;
    let at_most = found.missing_at_most.min(unwritten);
    let lost = match config.audit.policy {
        AuditPolicy::Strict => "nothing that was answered is missing".to_owned(),
        AuditPolicy::Shed => {
            format!(
                "at most {at_most} operations that were answered after the last of them are missing"
            )
        }
    };
    format!(
        "the last end was unclean: all {} records are there, {lost}, and the log says so",
        found.records
    )
}

fn data_dir(config: &Config) -> PathBuf {
    let dir = Path::new(&config.data_dir);
    dir.canonicalize().unwrap_or_else(|_| dir.to_owned())
}

/// What was drained, and whether the log is whole.
fn farewell(ended: &Ended) -> Result<(), Fatal> {
    say!(
        "stopped  {} operations finished while draining, {} tasks aborted; {} audit records, {} under the last checkpoint",
        ended.drained,
        ended.report.aborted,
        ended.records,
        ended.covered
    );
    match ended.report.exit_code() {
        0 => Ok(()),
        code => Err(Fatal::Failed(format!(
            "a task failed too often and the process gave up (exit {code}); see the log lines above"
        ))),
    }
}
