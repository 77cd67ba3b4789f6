//! `reload` and `shutdown`: what an operator tells a running service.
//!
//! On the machine of the service nobody has to look for a token: the process wrote one to its data folder, and the
//! configuration says where that is.

use std::{fs, path::Path, process::ExitCode};

use clap::Args;
use http::Method;
use ron_core::{app::AppSettings, auth::AuthConfig};

use super::{AskArgs, ConfigArgs, Program, ask};
use crate::say;

#[derive(Args, Clone, Debug)]
pub struct OperateArgs {
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    ask: AskArgs,
}

/// Posts to the operator's endpoint of that name and prints what it answers.
pub fn operate<C: AppSettings>(
    program: &'static Program,
    args: OperateArgs,
    action: &'static str,
    auth: impl Fn(&C) -> &AuthConfig,
) -> ExitCode {
    let OperateArgs { config, ask: whom } = args;
    let whom = whom.or_token(program, || operator_token(program, &config, auth));
    ask(program, whom, |client| async move {
        let path = format!("/api/v1/{action}");
        say!("{}", client.json(Method::POST, &path, "").await?);
        Ok(())
    })
}

/// What is not there, or cannot be read, is no token: the service says what it lacks.
fn operator_token<C: AppSettings>(
    program: &Program,
    args: &ConfigArgs,
    auth: impl Fn(&C) -> &AuthConfig,
) -> Option<String> {
    let sources = args.sources(program).ok()?;
    let loaded = sources.load::<C>(&program.prefix(), |_| Vec::new()).ok()?;
    let config = loaded.config;
    let file = Path::new(config.data_dir()?).join(&auth(&config).operator_token_file);
    let token = fs::read_to_string(file).ok()?;
    Some(token.trim().to_owned())
}
