//! Runs a service from its command line to its end: configuration, addresses, certificates, then the world; reloads
//! at SIGHUP and when the configuration file changes.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use clap::{Args, Command, FromArgMatches};
use ron_core::{
    Env, Shutdown,
    app::{AppSettings, Commit, Live, TlsConfig},
    bus::Bus,
    config::ConfigErrors,
    seam::{Listener, Pool},
    serve::TlsAccept,
};
use tokio::sync::watch;

use super::{ConfigArgs, Program};
use crate::{Data, Fatal, RunOptions, Running, Tls, TlsPem, TokioOptions, run};

/// What a service without a data directory may hold.
const MEMORY_BYTES: u64 = 512 * 1024 * 1024;

/// All that a service is started with.
pub struct Launch<C> {
    pub env: Env,
    pub bus: Bus,
    pub live: Arc<Live<C>>,
    /// Bound already, in the order in which the settings name them.
    pub listeners: Vec<Box<dyn Listener>>,
    pub tls: Option<Arc<dyn TlsAccept>>,
    pub stop: Shutdown,
}

/// What is known before anything is bound.
struct Loaded<C> {
    live: Arc<Live<C>>,
    bus: Bus,
    tls: Option<Arc<Tls>>,
    /// As it was when it was read.
    file: Option<Watched>,
}

/// Runs `service` until it returns. A start that is refused leaves nothing behind.
pub fn serve<C: AppSettings, F>(
    program: &'static Program,
    args: &ConfigArgs,
    service: impl FnOnce(Launch<C>) -> F,
) -> ExitCode
where
    F: Future<Output = Result<(), Fatal>>,
{
    let load = || {
        let loaded = load::<C>(program, args)?;
        let options = options(program, args, &*loaded.live.current(), true);
        Ok((loaded, options))
    };
    run(load, |running| start(running, service))
}

/// For a program that has no other command: parses its arguments too, with `serve` as their first word or without.
pub fn serve_only<C: AppSettings, F>(
    program: &'static Program,
    service: impl FnOnce(Launch<C>) -> F,
) -> ExitCode
where
    F: Future<Output = Result<(), Fatal>>,
{
    let named = |name: &'static str| ConfigArgs::augment_args(Command::new(name));
    let parsed = named(program.name)
        .version(program.version)
        .args_conflicts_with_subcommands(true)
        .subcommand(named("serve").about("Run the service (the default)"))
        .get_matches();
    let matches = parsed.subcommand_matches("serve").unwrap_or(&parsed);
    match ConfigArgs::from_arg_matches(matches) {
        Ok(args) => serve(program, &args, service),
        Err(error) => error.exit(),
    }
}

/// The same world for a command that works on a stopped service's data: `check` sees the configuration first, and
/// nothing listens.
pub fn with_store<C: AppSettings, F>(
    program: &'static Program,
    args: &ConfigArgs,
    check: impl FnOnce(&C) -> Result<(), Fatal>,
    act: impl FnOnce(Env, Arc<C>) -> F,
) -> ExitCode
where
    F: Future<Output = Result<(), Fatal>>,
{
    let load = || {
        let config = load::<C>(program, args)?.live.current();
        check(&config)?;
        let options = options(program, args, &*config, false);
        Ok((config, options))
    };
    run(load, |running| act(running.env, running.config))
}

fn load<C: AppSettings>(program: &'static Program, args: &ConfigArgs) -> Result<Loaded<C>, Fatal> {
    let file = args.file(program).map(Watched::new);
    let (bus, read) = (Bus::new(), args.clone());
    let live = Live::<C>::load(&program.prefix(), &bus, move || read.sources(program))?;
    let config = live.current();
    let pem = read_pem(config.tls())?;
    let tls = pem.map(|pem| Tls::new(&pem).map_err(|error| refused(config.tls(), error)));
    let tls = tls.transpose()?;
    let live = match tls.clone() {
        None => live,
        Some(tls) => live.preparing(move |config: &C| renew(&tls, config.tls())),
    };
    Ok(Loaded {
        live: Arc::new(live),
        bus,
        tls,
        file,
    })
}

fn options<C: AppSettings>(
    program: &Program,
    args: &ConfigArgs,
    config: &C,
    listen: bool,
) -> RunOptions {
    let data = match config.data_dir() {
        Some(dir) => Data::Directory(dir.into()),
        None => Data::Memory {
            limit_bytes: MEMORY_BYTES,
        },
    };
    RunOptions {
        tokio: TokioOptions {
            data,
            extra_ca_pem: None,
        },
        logs: args.logs(program),
        worker_threads: None,
        listen: if listen { config.binds() } else { Vec::new() },
    }
}

async fn start<C: AppSettings, F>(
    running: Running<Loaded<C>>,
    service: impl FnOnce(Launch<C>) -> F,
) -> Result<(), Fatal>
where
    F: Future<Output = Result<(), Fatal>>,
{
    let (env, loaded) = (running.env, running.config);
    let reloading = reload_when_told(
        env.clone(),
        loaded.live.clone(),
        running.reload,
        loaded.file,
    );
    let reloading = env.spawn("reload", reloading);
    let ended = service(Launch {
        env,
        bus: loaded.bus,
        live: loaded.live,
        listeners: running.listeners,
        tls: loaded.tls.map(|tls| tls as Arc<dyn TlsAccept>),
        stop: running.stop,
    });
    let ended = ended.await;
    reloading.abort();
    ended
}

// ---------------------------------------------------------------------------------- certificates

fn read_pem(tls: &TlsConfig) -> Result<Option<TlsPem>, ConfigErrors> {
    if !tls.is_on() {
        return Ok(None);
    }
    let read = |key: &str, path: &str| {
        fs::read(path).map_err(|error| ConfigErrors::of_file(path, key, error))
    };
    Ok(Some(TlsPem {
        cert: read("tls.cert", &tls.cert)?,
        key: read("tls.key", &tls.key)?,
        client_ca: match tls.client_ca.as_str() {
            "" => None,
            path => Some(read("tls.client_ca", path)?),
        },
    }))
}

fn refused(tls: &TlsConfig, error: impl std::fmt::Display) -> ConfigErrors {
    ConfigErrors::of_file(&tls.cert, "tls.cert", error)
}

/// New connections get the files' certificates as they are now.
fn renew(current: &Arc<Tls>, config: &TlsConfig) -> Result<Commit, ConfigErrors> {
    let Some(pem) = read_pem(config)? else {
        return Ok(Box::new(|| {}));
    };
    let renewed = Tls::prepare(&pem).map_err(|error| refused(config, error))?;
    let current = current.clone();
    Ok(Box::new(move || current.renew(renewed)))
}

// --------------------------------------------------------------------------------------- reloads

/// The configuration file, and what told it apart from others when it was last looked at.
struct Watched {
    path: PathBuf,
    seen: Option<Look>,
}

type Look = (u64, u64, u64, i64, i64);

impl Watched {
    fn new(path: PathBuf) -> Watched {
        let seen = look(&path);
        Watched { path, seen }
    }
}

fn look(path: &Path) -> Option<Look> {
    let found = fs::metadata(path).ok()?;
    let (at, part) = (found.mtime(), found.mtime_nsec());
    Some((found.dev(), found.ino(), found.len(), at, part))
}

async fn reload_when_told<C: AppSettings>(
    env: Env,
    live: Arc<Live<C>>,
    mut signal: watch::Receiver<u64>,
    file: Option<Watched>,
) {
    let watch_ms = live.current().reload().watch_ms;
    let mut changes = file.filter(|_| watch_ms > 0);
    loop {
        let why = tokio::select! {
            biased;
            told = signal.changed() => match told {
                Ok(()) => "SIGHUP",
                Err(_) => return,
            },
            () = changed(&env, changes.as_mut(), Duration::from_millis(watch_ms)) => "the file changed",
        };
        match live.reload() {
            Ok(report) => {
                tracing::info!(why, ?report.applied, ?report.needs_restart, "reloaded");
            }
            Err(errors) => {
                for error in errors.0 {
                    tracing::error!(why, %error, "not reloaded: the old configuration holds");
                }
            }
        }
    }
}

/// Returns when the file is another one, or no longer what it was. One that is gone is no change yet.
async fn changed(env: &Env, file: Option<&mut Watched>, every: Duration) {
    let Some(file) = file else {
        return std::future::pending().await;
    };
    loop {
        env.sleep(every).await;
        let path = file.path.clone();
        let looked = env.offload(Pool::DISK, move || look(&path)).await;
        if let Ok(Some(now)) = looked
            && file.seen != Some(now)
        {
            file.seen = Some(now);
            return;
        }
    }
}
