//! `svc-dht serve`: says where it listens, who it is and how to join it; drains at the end.

use std::{net::SocketAddr, path::Path, process::ExitCode};

use clap::Args;
use ron_core::{
    app::Start,
    config::{ConfigErrors, Reloadable},
};
use ron_io::{
    Fatal,
    cli::{self, ConfigArgs, Launch},
    say,
};

use super::{PROGRAM, identity_file::identity};
use crate::{
    config::Config,
    service::{Ended, Options, Service},
};

#[derive(Args, Clone, Debug, Default)]
pub struct ServeArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Join the network of this node, `host:port`; may be repeated, and adds to `bootstrap.seeds`
    #[arg(long = "join", value_name = "HOST:PORT")]
    join: Vec<String>,
}

pub fn run(args: ServeArgs) -> ExitCode {
    let config = match args.join.is_empty() {
        true => args.config,
        // What is wrong otherwise is told by the load that follows.
        false => joined(&args).unwrap_or(args.config),
    };
    cli::serve(&PROGRAM, &config, start)
}

/// Seeds of the command line, which none of the other sources can change any more.
fn joined(args: &ServeArgs) -> Result<ConfigArgs, ConfigErrors> {
    let sources = args.config.sources(&PROGRAM)?;
    let loaded = Reloadable::<Config>::load(&sources, &PROGRAM.prefix(), |_| Vec::new())?;
    let mut seeds = loaded.current().bootstrap.seeds.clone();
    seeds.extend(args.join.iter().cloned());
    let mut config = args.config.clone();
    config
        .set
        .retain(|set| !set.starts_with("bootstrap.seeds="));
    config.set.push(format!("bootstrap.seeds={seeds:?}"));
    Ok(config)
}

async fn start(launch: Launch<Config>) -> Result<(), Fatal> {
    let Launch {
        env,
        bus,
        live,
        listeners,
        tls,
        stop,
    } = launch;
    let config = live.current();
    let mut listeners = listeners.into_iter();
    let listener = listeners.next().expect("one for other nodes");
    let api = listeners.next();
    let (node_addr, api_addr) = (
        listener.local_addr().unwrap_or(config.bind),
        api.as_ref().and_then(|api| api.local_addr().ok()),
    );
    let identity = identity(&env, &config)?;
    let start = Start {
        tls,
        ..Start::live(env, bus, &live)
    };
    let service = Service::open(Options {
        start,
        identity,
        listener,
        api,
    });
    // Data that another process uses, or that cannot be read: nothing was begun, and the operator can help.
    let service = service
        .await
        .map_err(|error| Fatal::Config(error.to_string()))?;
    greet(&service, node_addr, api_addr);
    farewell(&service.run(stop, |_| {}).await)
}

fn greet(service: &Service, addr: SocketAddr, api: Option<SocketAddr>) {
    let (config, found) = (service.config(), &service.found);
    let (version, scheme) = (PROGRAM.version, config.tls.scheme());
    match api {
        Some(api) => say!("svc-dht {version} listens on {scheme}://{api}"),
        None => say!("svc-dht {version} has no local API"),
    }
    say!(
        "node     {} at {addr}, network `{}`",
        service.id(),
        config.network
    );
    say!("key      {}", service.public_key());
    let dir = Path::new(&config.data_dir);
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    say!(
        "data     {} ({} records, {} known nodes)",
        dir.display(),
        found.records,
        found.peers
    );
    for note in &found.notes {
        say!("note     {note}");
    }
    say!(
        "join     svc-dht serve --join {addr} --set bind=127.0.0.1:0 --set api.bind=127.0.0.1:0 --set data_dir=svc-dht-2"
    );
    if let Some(api) = api {
        say!("try      svc-dht put --url {scheme}://{api} greeting hello");
        say!("         svc-dht get --url {scheme}://{api} greeting");
    }
}

/// What was drained.
fn farewell(ended: &Ended) -> Result<(), Fatal> {
    say!(
        "stopped  {} lookups finished while draining, {} tasks aborted; {} records and {} known nodes kept",
        ended.drained,
        ended.report.aborted,
        ended.records,
        ended.peers
    );
    match ended.report.exit_code() {
        0 => Ok(()),
        code => Err(Fatal::Failed(format!(
            "a task failed too often and the process gave up (exit {code}); see the log lines above"
        ))),
    }
}
