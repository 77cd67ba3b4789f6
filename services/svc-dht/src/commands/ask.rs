//! `svc-dht get`, `put` and `provide`: asks a running node over its local API.

use std::{
    io::{self, Read, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::Args;
use http::Method;
use ron_io::{
    Fatal,
    cli::{AskArgs, ask, encoded},
    say,
};
use serde_json::Value;

use super::PROGRAM;

#[derive(Args, Clone, Debug)]
pub struct GetArgs {
    /// The key (64 hexadecimal digits), or a name
    what: String,
    /// Who published it, if `what` is a name: a public key; the node itself if absent
    #[arg(long)]
    publisher: Option<String>,
    #[command(flatten)]
    node: AskArgs,
}

#[derive(Args, Clone, Debug)]
pub struct PutArgs {
    name: String,
    /// The value; standard input if neither it nor `--file` is given
    value: Option<String>,
    /// Read the value from a file
    #[arg(long, conflicts_with = "value")]
    file: Option<PathBuf>,
    /// How long it outlives its publisher, in milliseconds
    #[arg(long)]
    ttl_ms: Option<u64>,
    #[command(flatten)]
    node: AskArgs,
}

#[derive(Args, Clone, Debug)]
pub struct ProvideArgs {
    /// 64 hexadecimal digits
    key: String,
    /// How long the announcement outlives the node, in milliseconds
    #[arg(long)]
    ttl_ms: Option<u64>,
    #[command(flatten)]
    node: AskArgs,
}

pub fn get(args: GetArgs) -> ExitCode {
    let is_key = args.publisher.is_none() && is_hex(&args.what);
    let what = encoded(&args.what);
    let path = match (is_key, &args.publisher) {
        (true, _) => format!("/v1/dht/values/{what}"),
        (false, None) => format!("/v1/dht/values?name={what}"),
        (false, Some(publisher)) => {
            let publisher = encoded(publisher);
            format!("/v1/dht/values?name={what}&publisher={publisher}")
        }
    };
    ask(&PROGRAM, args.node, |client| async move {
        let value = client.call(Method::GET, &path, "").await?;
        let written = io::stdout().write_all(&value);
        written.map_err(|error| Fatal::Failed(format!("the value cannot be written: {error}")))
    })
}

pub fn put(args: PutArgs) -> ExitCode {
    ask(&PROGRAM, args.node, |client| async move {
        let value = match (args.value, &args.file) {
            (Some(value), _) => value.into_bytes(),
            (None, Some(file)) => std::fs::read(file)
                .map_err(|error| Fatal::Config(format!("{}: {error}", file.display())))?,
            (None, None) => {
                let mut value = Vec::new();
                let read = io::stdin().read_to_end(&mut value);
                read.map_err(|error| Fatal::Config(format!("standard input: {error}")))?;
                value
            }
        };
        let mut path = format!("/v1/dht/values/{}", encoded(&args.name));
        if let Some(ttl_ms) = args.ttl_ms {
            path = format!("{path}?ttl_ms={ttl_ms}");
        }
        tell(&client.json(Method::PUT, &path, value).await?);
        Ok(())
    })
}

pub fn provide(args: ProvideArgs) -> ExitCode {
    ask(&PROGRAM, args.node, |client| async move {
        let path = format!("/v1/dht/providers/{}", encoded(&args.key));
        let life = args.ttl_ms.map(|ttl_ms| format!("{{\"ttl_ms\":{ttl_ms}}}"));
        let body = life.unwrap_or_default();
        tell(&client.json(Method::POST, &path, body).await?);
        Ok(())
    })
}

fn tell(answer: &Value) {
    say!("key       {}", answer["key"].as_str().unwrap_or("-"));
    say!("seq       {}", answer["seq"]);
    say!("replicas  {}", answer["replicas"]);
}

fn is_hex(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit())
}
