//! Asks a running service over HTTP: one question, one answer; a refusal is one line.

use std::{process::ExitCode, time::Duration};

use bytes::Bytes;
use clap::Args;
use http::{Method, Request, header};
use ron_core::{Env, problem::read_body};
use serde_json::Value;

use super::Program;
use crate::{Data, Fatal, Logs, RunOptions, Running, TokioOptions, run};

/// Whom to ask, and as whom.
#[derive(Args, Clone, Debug)]
pub struct AskArgs {
    /// Where the service listens; if absent, by ..._URL, or its usual address on this machine
    #[arg(long, global = true)]
    url: Option<String>,
    /// Bearer token, if the service asks for one; if absent, by ..._TOKEN
    #[arg(long, global = true)]
    token: Option<String>,
}

impl AskArgs {
    /// With a token of another origin, if the caller names none.
    pub(super) fn or_token(
        mut self,
        program: &Program,
        found: impl FnOnce() -> Option<String>,
    ) -> AskArgs {
        self.token = self.token.or_else(|| program.own("TOKEN")).or_else(found);
        self
    }
}

const DEADLINE: Duration = Duration::from_secs(30);

pub struct Client {
    env: Env,
    url: String,
    token: Option<String>,
}

/// Runs `act` in a world without data or threads to spare.
pub fn ask<F>(program: &Program, args: AskArgs, act: impl FnOnce(Client) -> F) -> ExitCode
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
        listen: Vec::new(),
    };
    let url = args.url.or_else(|| program.own("URL"));
    let url = url.unwrap_or_else(|| program.url.to_owned());
    let token = args.token.or_else(|| program.own("TOKEN"));
    let client = |running: Running<()>| Client {
        env: running.env,
        url: url.trim_end_matches('/').to_owned(),
        token,
    };
    run(|| Ok(((), options)), |running| act(client(running)))
}

impl Client {
    /// The body of an answer that is a success.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
    ) -> Result<Bytes, Fatal> {
        let url = &self.url;
        let failed = |what: &dyn std::fmt::Display| Fatal::Failed(format!("{url}: {what}"));
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{url}{path}"))
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(body.into());
        let request = request.map_err(|error| Fatal::Config(format!("`--url` {url}: {error}")))?;
        let answer = self.env.http(request, self.env.now() + DEADLINE).await;
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

    pub async fn json(
        &self,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
    ) -> Result<Value, Fatal> {
        let bytes = self.call(method, path, body).await?;
        serde_json::from_slice(&bytes)
            .map_err(|error| Fatal::Failed(format!("{}: the answer is no JSON: {error}", self.url)))
    }
}

/// Percent-encoded, for a path's segment or a query's value.
pub fn encoded(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    let encode = |b: u8| match plain(b) {
        true => (b as char).to_string(),
        false => format!("%{b:02X}"),
    };
    text.bytes().map(encode).collect()
}
