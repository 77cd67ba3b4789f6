//! `ron-kms keys`: asks a running service over HTTP.

use std::{process::ExitCode, time::Duration};

use bytes::Bytes;
use clap::{Args, Subcommand};
use ron_core::{Env, problem::read_body};
use ron_io::{Data, Fatal, Logs, RunOptions, Running, TokioOptions, run as run_io};
use serde_json::Value;

#[derive(Args, Clone, Debug)]
pub struct KeysArgs {
    #[command(subcommand)]
    command: KeysCommand,
    /// Where the service listens
    #[arg(
        long,
        global = true,
        default_value = "http://127.0.0.1:7480",
        env = "RON_KMS_URL"
    )]
    url: String,
    /// Bearer token, if the service asks for one
    #[arg(long, global = true, env = "RON_KMS_TOKEN", hide_env_values = true)]
    token: Option<String>,
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

const DEADLINE: Duration = Duration::from_secs(30);

pub fn run(args: KeysArgs) -> ExitCode {
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
    run_io(|| Ok(((), options)), |running| act(args, running))
}

async fn act(args: KeysArgs, running: Running<()>) -> Result<(), Fatal> {
    let client = Client {
        env: running.env,
        url: args.url.trim_end_matches('/').to_owned(),
        token: args.token,
    };
    match args.command {
        KeysCommand::List => client.list().await,
        KeysCommand::Rotate { kid, from } => {
            let body = from.map_or_else(|| "{}".to_owned(), |from| format!("{{\"from\":{from}}}"));
            let path = format!("/v1/kms/keys/{kid}/rotate");
            let answer = client.call("POST", &path, body).await?;
            say!("{answer}");
            Ok(())
        }
    }
}

struct Client {
    env: Env,
    url: String,
    token: Option<String>,
}

impl Client {
    async fn list(&self) -> Result<(), Fatal> {
        say!(
            "{:<22}  {:<20}  {:>4}  {:<16}  purpose",
            "kid",
            "algorithm",
            "head",
            "tenant"
        );
        let mut after = String::new();
        loop {
            let path = format!("/v1/kms/keys?limit=100{after}");
            let page = self.call("GET", &path, String::new()).await?;
            let keys = page["keys"].as_array().cloned().unwrap_or_default();
            for key in &keys {
                let text = |name: &str| key[name].as_str().unwrap_or("-").to_owned();
                say!(
                    "{:<22}  {:<20}  {:>4}  {:<16}  {}",
                    text("kid"),
                    text("alg"),
                    key["head"].as_u64().unwrap_or(0),
                    text("tenant"),
                    text("purpose")
                );
            }
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => return Ok(()),
            }
        }
    }

    async fn call(&self, method: &str, path: &str, body: String) -> Result<Value, Fatal> {
        let failed = |what: String| Fatal::Failed(what);
        let mut request = http::Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.url))
            .header("content-type", "application/json");
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request
            .body(Bytes::from(body))
            .map_err(|error| failed(format!("{}: {error}", self.url)))?;
        let answer = self
            .env
            .http(request, self.env.now() + DEADLINE)
            .await
            .map_err(|error| failed(format!("{}: {error}", self.url)))?;
        let status = answer.status();
        let bytes = read_body(answer.into_body()).await;
        let bytes = bytes.map_err(|_| failed("the answer broke off".into()))?;
        let value: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        match status.is_success() {
            true => Ok(value),
            false => Err(failed(format!(
                "{status}: {} ({})",
                value["detail"].as_str().unwrap_or("no detail"),
                value["code"].as_str().unwrap_or("-")
            ))),
        }
    }
}
