//! `sim models` checks every model, `sim explore` opens one in the browser.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    process::ExitCode,
};

use super::{Args, Wrong};
use crate::{
    models::{self, Checked, ModelKind},
    say, services,
};

pub(super) fn check_all(args: &Args) -> Result<ExitCode, Wrong> {
    let chosen: Vec<&ModelKind> = if args.names.is_empty() {
        services::models().collect()
    } else {
        args.names
            .iter()
            .map(|name| find(name))
            .collect::<Result<_, _>>()?
    };
    say!("{}", Checked::header());
    let mut violated = 0;
    for kind in &chosen {
        let checked = (kind.check)();
        say!("{}", checked.row(kind.name));
        violated += usize::from(!checked.holds());
    }
    say!("{} models, {violated} violated", chosen.len());
    Ok(if violated > 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

pub(super) fn explore(args: &Args) -> Result<ExitCode, Wrong> {
    let [name] = &args.names[..] else {
        return Err(Wrong(format!(
            "explore takes one model: sim explore MODEL [--port N]; there are: {}",
            names()
        )));
    };
    let kind = find(name)?;
    let port = args.number("--port")?.unwrap_or(3000);
    let port = u16::try_from(port)
        .map_err(|_| Wrong(format!("--port {port} is no port; it takes 0 to 65535")))?;
    // Bound once to see that it is free, and which one it is; the explorer itself would panic.
    let addr = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
        .and_then(|listener| listener.local_addr())
        .map_err(|e| {
            Wrong(format!(
                "port {port} cannot be used: {e}; choose another with --port"
            ))
        })?;
    say!("{}: {}", kind.name, kind.about);
    say!("open http://{addr}/   (ends with Ctrl-C)");
    (kind.explore)(addr);
    Ok(ExitCode::SUCCESS)
}

fn find(name: &str) -> Result<&'static ModelKind, Wrong> {
    models::find(name).ok_or_else(|| Wrong(format!("no model {name:?}; there are: {}", names())))
}

fn names() -> String {
    let names: Vec<_> = services::models().map(|kind| kind.name).collect();
    names.join(", ")
}
