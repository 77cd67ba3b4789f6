//! `ron-kms rekey`: another key file or passphrase, and a fresh key-encryption key under it.

use std::process::ExitCode;

use clap::Args;
use ron_core::Env;
use ron_io::{
    Fatal,
    cli::{ConfigArgs, with_store},
    say,
};

use super::{PROGRAM, unlock};
use crate::{
    config::Config,
    keys::Secret,
    keystore::{KeyStore, StoreError, Stretch, Unlock},
};

#[derive(Args, Clone, Debug)]
pub struct RekeyArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// The new key file, made if it does not exist (relative to the data directory)
    #[arg(long, value_name = "FILE", conflicts_with = "new_passphrase_env")]
    new_key_file: Option<String>,
    /// The variable that holds the new passphrase
    #[arg(long, value_name = "VARIABLE")]
    new_passphrase_env: Option<String>,
    /// Keep the key-encryption key, change only what opens it
    #[arg(long)]
    keep_kek: bool,
}

pub fn run(args: RekeyArgs) -> ExitCode {
    let config = args.config.clone();
    // A store that is not there has nothing to seal anew.
    with_store(
        &PROGRAM,
        &config,
        unlock::check_store,
        |env, config| async move { rekey(&args, &env, &config).await },
    )
}

async fn rekey(args: &RekeyArgs, env: &Env, config: &Config) -> Result<(), Fatal> {
    let new = match (&args.new_key_file, &args.new_passphrase_env) {
        (Some(name), _) => {
            let path = unlock::key_file(config, name);
            if !path.exists() {
                unlock::make_key_file(env, &path).map_err(|error| {
                    Fatal::Config(format!("key file {}: {error}", path.display()))
                })?;
            }
            Unlock::Key(
                unlock::read_key_file(&path)
                    .map_err(|error| unlock::key_file_trouble(&path, &error))?,
            )
        }
        (None, Some(variable)) => {
            let passphrase = std::env::var(variable).unwrap_or_default();
            if passphrase.is_empty() {
                return Err(Fatal::Config(format!(
                    "the variable {variable} is empty or not set"
                )));
            }
            Unlock::Passphrase(Secret::copy_of(passphrase.as_bytes()))
        }
        (None, None) => {
            return Err(Fatal::Config(
                "--new-key-file FILE or --new-passphrase-env VARIABLE is needed".into(),
            ));
        }
    };
    let old = unlock::unlock(env, config)?;
    let failed = |error: StoreError| Fatal::Config(format!("{}: {error}", config.data_dir));
    let store = KeyStore::open(env, old).await.map_err(failed)?;
    let done = match args.keep_kek {
        true => store.change_unlock(new, Stretch::default()).await,
        false => store.rekey(new, Stretch::default()).await,
    };
    done.map_err(failed)?;
    say!(
        "the key store opens with the new key only: set store.key_file or store.passphrase accordingly"
    );
    Ok(())
}
