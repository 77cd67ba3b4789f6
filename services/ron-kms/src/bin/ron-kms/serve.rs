//! `ron-kms serve`: opens what it needs, says where it listens and where its data lies, and drains at the end.

use std::{fs, path::Path, process::ExitCode, sync::Arc};

use ron_core::{
    Env,
    auth::AuthMode,
    bus::{Bus, KernelEvent},
    config::Reloadable,
    serve::TlsAccept,
};
use ron_io::{Fatal, Running, Tls, TlsPem, run as run_io};
use ron_kms::{
    backend::{Backend, memory::MemoryBackend, software::SoftwareBackend},
    config::{BackendKind, Config},
    keystore::{KeyStore, StoreError},
    service::{Ended, Options, Service},
};

use crate::setup::{self, ConfigArgs};

pub fn run(args: ConfigArgs) -> ExitCode {
    let load = || {
        let config = args.load()?;
        let options = args.run_options(&config.current());
        Ok((config, options))
    };
    run_io(load, |running| serve(args.clone(), running))
}

async fn serve(args: ConfigArgs, running: Running<Reloadable<Config>>) -> Result<(), Fatal> {
    let Running {
        config: reloadable,
        env,
        stop,
        mut reload,
    } = running;
    let reloadable = Arc::new(reloadable);
    let config = reloadable.current();
    // Bound first: a port that is taken must not cost the time of opening a store.
    let addr = config.bind;
    let listener = env
        .listen(addr)
        .await
        .map_err(|source| Fatal::Listen { addr, source })?;
    let addr = listener.local_addr().unwrap_or(addr);
    let store = open_store(&env, &config).await?;
    let backend = open_backend(&env, &config, &store).await?;
    let bus = Bus::new();
    let reload_now = reloader(args, reloadable.clone(), bus.clone());
    let source = reloadable.clone();
    let asked = reload_now.clone();
    let service = Service::open(Options {
        env: env.clone(),
        bus,
        config: config.clone(),
        config_source: Arc::new(move || source.current()),
        store,
        backend,
        tls: tls(&config)?,
        reload: Some(Arc::new(move || {
            let done = asked();
            Box::pin(async move { done })
        })),
        token_keys: None,
    })
    .await
    .map_err(|error| Fatal::Failed(error.to_string()))?;
    greet(&config, addr, &service);
    let watching = env.spawn("reload", async move {
        while reload.changed().await.is_ok() {
            match reload_now() {
                Ok(report) => tracing::info!(?report.applied, ?report.needs_restart, "reloaded"),
                Err(errors) => {
                    tracing::error!(%errors, "the configuration was not reloaded; the old one holds");
                }
            }
        }
    });
    let ended = service.run(listener, stop, |_| {}).await;
    watching.abort();
    farewell(&ended)
}

type ReloadNow = Arc<
    dyn Fn() -> Result<ron_core::config::ReloadReport, ron_core::config::ConfigErrors>
        + Send
        + Sync,
>;

fn reloader(args: ConfigArgs, config: Arc<Reloadable<Config>>, bus: Bus) -> ReloadNow {
    let count = std::sync::atomic::AtomicU64::new(0);
    Arc::new(move || {
        let sources = args.sources().map_err(|reason| {
            ron_core::config::ConfigErrors(vec![ron_core::config::ConfigError {
                origin: ron_core::config::Origin::Cli,
                key: String::new(),
                value: String::new(),
                reason,
            }])
        })?;
        let report = config.reload(&sources)?;
        let version = 1 + count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        bus.publish(KernelEvent::ConfigUpdated { version });
        Ok(report)
    })
}

async fn open_store(env: &Env, config: &Config) -> Result<KeyStore, Fatal> {
    if config.backend == BackendKind::Memory {
        return KeyStore::memory(env).map_err(|error| Fatal::Failed(error.to_string()));
    }
    let unlock = setup::unlock(env, config)?;
    KeyStore::open(env, unlock)
        .await
        .map_err(|error| match error {
            StoreError::Locked | StoreError::WrongKey | StoreError::Newer { .. } => {
                Fatal::Config(format!("{}: {error}", config.data_dir))
            }
            other => Fatal::Failed(format!("{}: {other}", config.data_dir)),
        })
}

async fn open_backend(
    env: &Env,
    config: &Config,
    store: &KeyStore,
) -> Result<Arc<dyn Backend>, Fatal> {
    Ok(match config.backend {
        BackendKind::Software => Arc::new(SoftwareBackend::new(env, store.kek())),
        BackendKind::Memory => Arc::new(MemoryBackend::new(env)),
        BackendKind::Pkcs11 => pkcs11(env, config).await?,
    })
}

#[cfg(feature = "pkcs11")]
async fn pkcs11(env: &Env, config: &Config) -> Result<Arc<dyn Backend>, Fatal> {
    use ron_kms::backend::pkcs11::{Pkcs11Backend, Pkcs11Config, TokenName};
    let token = Pkcs11Config {
        module: config.pkcs11.module.clone().into(),
        token: TokenName::Label(config.pkcs11.token.clone()),
        pin: ron_kms::keys::Secret::copy_of(config.pkcs11.pin.reveal().as_bytes()),
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

fn tls(config: &Config) -> Result<Option<Arc<dyn TlsAccept>>, Fatal> {
    if config.tls.cert.is_empty() {
        return Ok(None);
    }
    let read = |key: &str, path: &str| {
        fs::read(path).map_err(|error| Fatal::Config(format!("`{key}` {path}: {error}")))
    };
    let client_ca = match config.tls.client_ca.as_str() {
        "" => None,
        path => Some(read("tls.client_ca", path)?),
    };
    let pem = TlsPem {
        cert: read("tls.cert", &config.tls.cert)?,
        key: read("tls.key", &config.tls.key)?,
        client_ca,
    };
    let tls = Tls::new(&pem).map_err(|error| Fatal::Config(format!("`tls.cert`: {error}")))?;
    Ok(Some(tls))
}

fn greet(config: &Config, addr: std::net::SocketAddr, service: &Service) {
    let scheme = if config.tls.cert.is_empty() {
        "http"
    } else {
        "https"
    };
    let url = format!("{scheme}://{addr}");
    let found = &service.found;
    say!("ron-kms {} listens on {url}", env!("CARGO_PKG_VERSION"));
    if config.backend == BackendKind::Memory {
        say!("data     in memory: all is gone when it stops");
    } else {
        let dir = Path::new(&config.data_dir);
        let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
        say!("data     {} ({} keys)", dir.display(), found.keys);
        say!(
            "audit    {} records, policy {}; check it with: ron-kms audit verify {}",
            found.records,
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
        say!(
            "note     the last end was unclean: at most {} operations are missing from the log, and it says so",
            found.missing_at_most
        );
    }
    if let Some(why) = &found.mismatch {
        say!("WARNING  no key is used: {why}");
    }
    // Somebody else signs the tokens: where one goes is all that can be told.
    let token = match config.auth.mode {
        AuthMode::Passport => " -H \"authorization: Bearer $TOKEN\"",
        AuthMode::None | AuthMode::Ingress => "",
    };
    say!("try      KID=$(curl -s {url}/v1/kms/keys{token} -H 'content-type: application/json' \\");
    say!(
        "           -d '{{\"purpose\":\"demo\",\"alg\":\"ed25519\"}}' | sed 's/.*\"kid\":\"\\([^\"#]*\\).*/\\1/')"
    );
    say!("         curl -s {url}/v1/kms/sign{token} -H 'content-type: application/json' \\");
    say!("           -d \"{{\\\"kid\\\":\\\"$KID\\\",\\\"message\\\":\\\"aGVsbG8\\\"}}\"");
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
