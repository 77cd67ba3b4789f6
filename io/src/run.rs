//! What a service's `main` calls: load the configuration, build the world, run until told to stop.
//!
//! Always: a mistake of the operator costs one line on stderr and exit code 2, before anything is bound;
//! a failure later costs one line and exit code 1; never a backtrace.

use std::{
    future::Future,
    io::{self, Write},
    net::SocketAddr,
    panic::{self, AssertUnwindSafe, catch_unwind},
    process::ExitCode,
};

use ron_core::{Env, Shutdown, config::ConfigErrors, seam::Listener};
use tokio::{runtime, sync::watch};
use tracing_subscriber::{EnvFilter, layer::SubscriberExt, util::SubscriberInitExt};

use crate::{TokioOptions, TokioRuntime, net::listen, signals::watch_signals};

/// What `main` itself decides; everything else is the service's configuration.
#[derive(Clone, Debug)]
pub struct RunOptions {
    pub tokio: TokioOptions,
    pub logs: Logs,
    /// Threads that run tasks; one per core if absent.
    pub worker_threads: Option<usize>,
    /// Bound before anything else is made.
    pub listen: Vec<SocketAddr>,
}

/// Logs go to stderr.
#[derive(Clone, Debug)]
pub struct Logs {
    /// As in `info,svc_edge=debug`.
    pub filter: String,
    pub json: bool,
}

/// What a service is given.
pub struct Running<C> {
    pub config: C,
    pub env: Env,
    /// One for each address asked for.
    pub listeners: Vec<Box<dyn Listener>>,
    /// Triggered by SIGINT or SIGTERM.
    pub stop: Shutdown,
    /// Changes at each SIGHUP.
    pub reload: watch::Receiver<u64>,
}

/// Why a process cannot go on. `Display` is the line for the operator.
#[derive(Debug, thiserror::Error)]
pub enum Fatal {
    #[error("invalid configuration: {0}")]
    Config(String),
    #[error("invalid configuration: {0}")]
    Settings(#[from] ConfigErrors),
    #[error("cannot listen on {addr}: {}", listen_reason(.source))]
    Listen { addr: SocketAddr, source: io::Error },
    #[error("{0}")]
    Failed(String),
}

impl Fatal {
    fn exit_code(&self) -> u8 {
        match self {
            Fatal::Config(_) | Fatal::Settings(_) | Fatal::Listen { .. } => 2,
            Fatal::Failed(_) => 1,
        }
    }

    /// One for each mistake.
    fn lines(&self) -> Vec<String> {
        match self {
            Fatal::Settings(errors) => {
                let line = |error| format!("invalid configuration: {error}");
                errors.0.iter().map(line).collect()
            }
            other => vec![other.to_string()],
        }
    }
}

/// Runs a service to its end and says how the process should exit.
pub fn run<C, F>(
    load: impl FnOnce() -> Result<(C, RunOptions), Fatal>,
    service: impl FnOnce(Running<C>) -> F,
) -> ExitCode
where
    F: Future<Output = Result<(), Fatal>>,
{
    match try_run(load, service) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fatal) => {
            for line in fatal.lines() {
                // Nobody has to read it: the code still tells.
                let _ = writeln!(io::stderr(), "error: {}", one_line(&line));
            }
            ExitCode::from(fatal.exit_code())
        }
    }
}

fn try_run<C, F>(
    load: impl FnOnce() -> Result<(C, RunOptions), Fatal>,
    service: impl FnOnce(Running<C>) -> F,
) -> Result<(), Fatal>
where
    F: Future<Output = Result<(), Fatal>>,
{
    let (config, options) = load()?;
    start_logs(&options.logs)?;
    let mut builder = runtime::Builder::new_multi_thread();
    if let Some(threads) = options.worker_threads {
        builder.worker_threads(threads.max(1));
    }
    let runtime = builder
        .enable_all()
        .build()
        .map_err(|e| Fatal::Failed(format!("cannot start the runtime: {e}")))?;

    let stop = Shutdown::new();
    let (reloads, reload) = watch::channel(0);
    watch_signals(stop.clone(), move || {
        reloads.send_modify(|count| *count += 1);
    })
    .map_err(|e| Fatal::Failed(format!("cannot listen to signals: {e}")))?;

    // Before the data directory: an address that is taken leaves nothing behind.
    let mut listeners = Vec::new();
    for addr in options.listen {
        let listener = runtime.block_on(listen(addr));
        listeners.push(listener.map_err(|source| Fatal::Listen { addr, source })?);
    }
    let env = Env::new(TokioRuntime::new(runtime.handle().clone(), &options.tokio)?);
    let running = Running {
        config,
        env,
        listeners,
        stop,
        reload,
    };
    let ended = catch_unwind(AssertUnwindSafe(|| runtime.block_on(service(running))));
    // Offloaded calls that nobody waits for end with the process.
    runtime.shutdown_background();
    ended.unwrap_or_else(|_| Err(Fatal::Failed("the service panicked".into())))
}

fn start_logs(logs: &Logs) -> Result<(), Fatal> {
    let filter = EnvFilter::builder()
        .parse(&logs.filter)
        .map_err(|e| Fatal::Config(format!("log filter `{}`: {e}", logs.filter)))?;
    // A pipe that is closed is no reason to panic while telling so.
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .log_internal_errors(false);
    let registry = tracing_subscriber::registry().with(filter);
    let installed = if logs.json {
        registry.with(layer.json()).try_init()
    } else {
        registry.with(layer.with_ansi(false)).try_init()
    };
    installed.map_err(|e| Fatal::Failed(format!("cannot start logging: {e}")))?;
    // A panic is an event like others: one line, where the logs go.
    panic::set_hook(Box::new(|info| {
        tracing::error!(panic = one_line(&info.to_string()), "a task panicked");
    }));
    Ok(())
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn listen_reason(source: &io::Error) -> String {
    match source.kind() {
        io::ErrorKind::AddrInUse => "the address is in use".into(),
        io::ErrorKind::PermissionDenied => "permission denied".into(),
        io::ErrorKind::AddrNotAvailable => "no such address on this host".into(),
        _ => source.to_string(),
    }
}
