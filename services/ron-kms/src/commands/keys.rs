//! `ron-kms keys`: asks a running service over HTTP.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use http::Method;
use ron_io::{
    Fatal,
    cli::{AskArgs, Client, ask, encoded},
    say,
};
use serde_json::Value;

use super::PROGRAM;

#[derive(Args, Clone, Debug)]
pub struct KeysArgs {
    #[command(subcommand)]
    command: KeysCommand,
    #[command(flatten)]
    ask: AskArgs,
}

#[derive(Subcommand, Clone, Debug)]
enum KeysCommand {
    /// Show all keys that the caller may see
    List,
    /// Give a key a new version
    Rotate {
        kid: String,
        /// Only if this is the newest version now
        #[arg(long)]
        from: Option<u32>,
    },
}

pub fn run(args: KeysArgs) -> ExitCode {
    let KeysArgs { command, ask: whom } = args;
    ask(&PROGRAM, whom, |client| async move {
        match command {
            KeysCommand::List => list(&client).await,
            KeysCommand::Rotate { kid, from } => {
                let body = from.map_or_else(|| "{}".into(), |from| format!("{{\"from\":{from}}}"));
                let path = format!("/v1/kms/keys/{}/rotate", encoded(&kid));
                say!("{}", client.json(Method::POST, &path, body).await?);
                Ok(())
            }
        }
    })
}

async fn list(client: &Client) -> Result<(), Fatal> {
    let row = |kid: &str, alg: &str, head: &str, tenant: &str, purpose: &str| {
        say!("{kid:<22}  {alg:<20}  {head:>4}  {tenant:<16}  {purpose}");
    };
    let mut after = None;
    loop {
        let from = after
            .as_ref()
            .map_or_else(String::new, |after| format!("&after={after}"));
        let path = format!("/v1/kms/keys?limit=100{from}");
        let page = client.json(Method::GET, &path, "").await?;
        if after.is_none() {
            row("kid", "algorithm", "head", "tenant", "purpose");
        }
        for key in page["keys"].as_array().into_iter().flatten() {
            let text = |name: &str| key[name].as_str().unwrap_or("-");
            let head = key["head"].as_u64().unwrap_or(0).to_string();
            row(
                text("kid"),
                text("alg"),
                &head,
                text("tenant"),
                text("purpose"),
            );
        }
        match &page["next"] {
            Value::String(next) => after = Some(next.clone()),
            _ => return Ok(()),
        }
    }
}
