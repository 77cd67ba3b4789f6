//! `svc-dht serve`: says where it listens, who it is and how to join it; drains at the end.

use std::{net::SocketAddr, path::Path, process::ExitCode, sync::Arc};

use ron_core::{Env, seam::Listener};
use ron_io::{Fatal, Running, run as run_io};
use svc_dht::{
    config::Config,
    service::{Ended, Options, Service},
};

use crate::setup::{self, ConfigArgs};

pub fn run(args: ConfigArgs) -> ExitCode {
    let load = || {
        let config = args.load()?;
        let options = args.run_options(&config);
        Ok((config, options))
    };
    run_io(load, serve)
}

async fn serve(running: Running<Config>) -> Result<(), Fatal> {
    let Running {
        config, env, stop, ..
    } = running;
    // Bound first: a port that is taken must not cost the time of opening the records.
    let listener = listen(&env, config.bind).await?;
    let api = match config.api.enabled {
        true => Some(listen(&env, config.api.bind).await?),
        false => None,
    };
    let (node_addr, api_addr) = (
        listener.local_addr().unwrap_or(config.bind),
        api.as_ref().and_then(|api| api.local_addr().ok()),
    );
    let identity = setup::identity(&env, &config)?;
    let service = Service::open(Options::new(env, Arc::new(config), identity, listener, api)).await;
    // Data that another process uses, or that cannot be read: nothing was begun, and the operator can help.
    let service = service.map_err(|error| Fatal::Config(error.to_string()))?;
    greet(&service, node_addr, api_addr);
    let ended = service.run(stop, |_| {}).await;
    farewell(&ended)
}

async fn listen(env: &Env, addr: SocketAddr) -> Result<Box<dyn Listener>, Fatal> {
    let listening = env.listen(addr).await;
    listening.map_err(|source| Fatal::Listen { addr, source })
}

fn greet(service: &Service, addr: SocketAddr, api: Option<SocketAddr>) {
    let (config, found) = (service.config(), &service.found);
    let version = env!("CARGO_PKG_VERSION");
    match api {
        Some(api) => println!("svc-dht {version} listens on http://{api}"),
        None => println!("svc-dht {version} has no local API"),
    }
    println!(
        "node     {} at {addr}, network `{}`",
        service.id(),
        config.network
    );
    println!("key      {}", service.public_key());
    let dir = Path::new(&config.data_dir);
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    println!(
        "data     {} ({} records, {} known nodes)",
        dir.display(),
        found.records,
        found.peers
    );
    for note in &found.notes {
        println!("note     {note}");
    }
    println!(
        "join     svc-dht serve --join {addr} --set bind=127.0.0.1:0 --set api.bind=127.0.0.1:0 --set data_dir=svc-dht-2"
    );
    if let Some(api) = api {
        println!("try      svc-dht put --url http://{api} greeting hello");
        println!("         svc-dht get --url http://{api} greeting");
    }
}

/// What was drained.
fn farewell(ended: &Ended) -> Result<(), Fatal> {
    println!(
        "stopped  {} lookups finished while draining, {} tasks aborted; {} records and {} known nodes kept",
        ended.drained, ended.report.aborted, ended.records, ended.peers
    );
    match ended.report.exit_code() {
        0 => Ok(()),
        code => Err(Fatal::Failed(format!(
            "a task failed too often and the process gave up (exit {code}); see the log lines above"
        ))),
    }
}
