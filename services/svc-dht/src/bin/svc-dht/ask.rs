//! `svc-dht get`, `put` and `provide`: asks a running node over its local API.

use std::{
    io::{self, Read, Write},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use bytes::Bytes;
use clap::Args;
use http::Method;
use ron_core::{Env, problem::read_body};
use ron_io::{Data, Fatal, Logs, RunOptions, Running, TokioOptions, run as run_io};
use serde_json::Value;

#[derive(Args, Clone, Debug)]
pub struct NodeArgs {
    /// Where the node's local API listens
    #[arg(long, default_value = "http://127.0.0.1:7491", env = "SVC_DHT_URL")]
    url: String,
    /// Bearer token, if the node asks for one
    #[arg(long, env = "SVC_DHT_TOKEN", hide_env_values = true)]
    token: Option<String>,
}

#[derive(Args, Clone, Debug)]
pub struct GetArgs {
    /// The key (64 hexadecimal digits), or a name
    what: String,
    /// Who published it, if `what` is a name: a public key; the node itself if absent
    #[arg(long)]
    publisher: Option<String>,
    #[command(flatten)]
    node: NodeArgs,
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
    node: NodeArgs,
}

#[derive(Args, Clone, Debug)]
pub struct ProvideArgs {
    /// 64 hexadecimal digits
    key: String,
    /// How long the announcement outlives the node, in milliseconds
    #[arg(long)]
    ttl_ms: Option<u64>,
    #[command(flatten)]
    node: NodeArgs,
}

const DEADLINE: Duration = Duration::from_secs(30);

pub fn get(args: GetArgs) -> ExitCode {
    asking(|env| async move {
        let is_key = args.publisher.is_none() && is_hex(&args.what);
        let path = match (is_key, &args.publisher) {
            (true, _) => format!("/v1/dht/values/{}", args.what),
            (false, None) => format!("/v1/dht/values?name={}", encoded(&args.what)),
            (false, Some(publisher)) => format!(
                "/v1/dht/values?name={}&publisher={}",
                encoded(&args.what),
                encoded(publisher)
            ),
        };
        let value = call(&env, &args.node, Method::GET, &path, Bytes::new()).await?;
        let written = io::stdout().write_all(&value);
        written.map_err(|error| Fatal::Failed(format!("the value cannot be written: {error}")))
    })
}

pub fn put(args: PutArgs) -> ExitCode {
    asking(|env| async move {
        let value = match (&args.value, &args.file) {
            (Some(value), _) => value.clone().into_bytes(),
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
        let answer = call(&env, &args.node, Method::PUT, &path, value.into()).await?;
        tell(&answer)
    })
}

pub fn provide(args: ProvideArgs) -> ExitCode {
    asking(|env| async move {
        let path = format!("/v1/dht/providers/{}", encoded(&args.key));
        let life = args.ttl_ms.map(|ttl_ms| format!("{{\"ttl_ms\":{ttl_ms}}}"));
        let body = Bytes::from(life.unwrap_or_default());
        let answer = call(&env, &args.node, Method::POST, &path, body).await?;
        tell(&answer)
    })
}

/// A world without data or threads to spare: one question, one answer.
fn asking<F>(act: impl FnOnce(Env) -> F) -> ExitCode
where
    F: Future<Output = Result<(), Fatal>>,
{
    let options = RunOptions {
        tokio: TokioOptions {
            data: Data::Memory { limit_bytes: 0 },
            extra_ca_pem: None,
        },
        logs: Logs {
            filter: "warn".into(),
            json: false,
        },
        worker_threads: Some(1),
    };
    run_io(
        || Ok(((), options)),
        |running: Running<()>| act(running.env),
    )
}

async fn call(
    env: &Env,
    node: &NodeArgs,
    method: Method,
    path: &str,
    body: Bytes,
) -> Result<Bytes, Fatal> {
    let url = node.url.trim_end_matches('/');
    let failed = |what: &dyn std::fmt::Display| Fatal::Failed(format!("{url}: {what}"));
    let mut request = http::Request::builder()
        .method(method)
        .uri(format!("{url}{path}"));
    if let Some(token) = &node.token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let request = request.body(body);
    let request =
        request.map_err(|error| Fatal::Config(format!("`--url` {url}{path}: {error}")))?;
    let answer = env.http(request, env.now() + DEADLINE).await;
    let answer = answer.map_err(|error| failed(&error))?;
    let status = answer.status();
    let bytes = read_body(answer.into_body()).await;
    let bytes = bytes.map_err(|_| failed(&"the answer broke off"))?;
    if status.is_success() {
        return Ok(bytes);
    }
    let problem: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    let detail = problem["detail"].as_str().unwrap_or("no detail");
    let code = problem["code"].as_str().unwrap_or("-");
    Err(Fatal::Failed(format!("{status}: {detail} ({code})")))
}

fn tell(answer: &Bytes) -> Result<(), Fatal> {
    let answer: Value = serde_json::from_slice(answer).unwrap_or(Value::Null);
    println!("key       {}", answer["key"].as_str().unwrap_or("-"));
    println!("seq       {}", answer["seq"]);
    println!("replicas  {}", answer["replicas"]);
    Ok(())
}

fn is_hex(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Percent-encoded, for a path's segment or a query's value.
fn encoded(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    let encode = |b: u8| match plain(b) {
        true => (b as char).to_string(),
        false => format!("%{b:02X}"),
    };
    text.bytes().map(encode).collect()
}
