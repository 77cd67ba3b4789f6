//! What `serve` and `rekey` need before anything runs: configuration, data directory, what opens the store.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use clap::Args;
use ron_core::{
    Env,
    config::{ConfigErrors, Reloadable, Sources},
};
use ron_io::{
    Data, Fatal, Logs, RunOptions, SecretFileError, TokioOptions, make_secret_file,
    read_secret_file,
};
use ron_kms::{
    config::{BackendKind, Config},
    keys::Secret,
    keystore::{FILE, Unlock},
};

/// What may be set on the command line; `RON_KMS_*` variables and the file come after it.
#[derive(Args, Clone, Debug, Default)]
pub struct ConfigArgs {
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE", env = "RON_KMS_CONFIG")]
    config: Option<PathBuf>,
    /// Set one key, as in `--set audit.policy=strict`; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// What is logged, as in `info,ron_kms=debug`
    #[arg(
        long,
        value_name = "FILTER",
        default_value = "info",
        env = "RON_KMS_LOG"
    )]
    pub log: String,
    /// Log as JSON lines
    #[arg(long)]
    log_json: bool,
}

const PREFIX: &str = "RON_KMS_";
/// Bytes of a key-encryption key.
const KEY: u64 = 32;
/// What amnesia mode may hold.
const MEMORY_BYTES: u64 = 512 * 1024 * 1024;

impl ConfigArgs {
    /// Read anew at each reload.
    pub fn sources(&self) -> Result<Sources, String> {
        let file = match &self.config {
            None => None,
            Some(path) => {
                let name = path.display().to_string();
                let text = fs::read_to_string(path).map_err(|e| format!("{name}: {e}"))?;
                Some((name, text))
            }
        };
        // Variables of the command line itself are no keys.
        let own = ["RON_KMS_CONFIG", "RON_KMS_LOG"];
        let env = std::env::vars().filter(|(name, _)| !own.contains(&name.as_str()));
        Ok(Sources {
            file,
            env: env.collect(),
            cli: self.set.clone(),
        })
    }

    pub fn load(&self) -> Result<Reloadable<Config>, Fatal> {
        let sources = self.sources().map_err(Fatal::Config)?;
        let rules = |config: &Config| config.rules();
        Reloadable::load(&sources, PREFIX, rules)
            .map_err(|errors: ConfigErrors| Fatal::Config(errors.to_string()))
    }

    pub fn run_options(&self, config: &Config) -> RunOptions {
        let data = match config.backend {
            BackendKind::Memory => Data::Memory {
                limit_bytes: MEMORY_BYTES,
            },
            _ => Data::Directory(config.data_dir.clone().into()),
        };
        RunOptions {
            tokio: TokioOptions {
                data,
                extra_ca_pem: None,
            },
            logs: Logs {
                filter: self.log.clone(),
                json: self.log_json,
            },
            worker_threads: None,
        }
    }
}

/// Where the key-encryption key lies: beside the data unless the path says otherwise.
pub fn key_file(config: &Config, named: &str) -> PathBuf {
    Path::new(&config.data_dir).join(named)
}

/// There is a store to work on.
pub fn check_store(config: &Config) -> Result<(), Fatal> {
    if config.backend == BackendKind::Memory {
        return Err(Fatal::Config(
            "backend = \"memory\" has no key store".into(),
        ));
    }
    let store = store_file(config);
    match store.is_file() {
        true => Ok(()),
        false => Err(Fatal::Config(format!(
            "{}: there is no key store: set data_dir to where it lies",
            store.display()
        ))),
    }
}

fn store_file(config: &Config) -> PathBuf {
    Path::new(&config.data_dir).join(FILE)
}

/// What opens the store of this configuration. A key file is made if the store does not exist yet.
pub fn unlock(env: &Env, config: &Config) -> Result<Unlock, Fatal> {
    let passphrase = config.store.passphrase.reveal();
    if !passphrase.is_empty() {
        return Ok(Unlock::Passphrase(Secret::copy_of(passphrase.as_bytes())));
    }
    let path = key_file(config, &config.store.key_file);
    let store = store_file(config);
    match read_key_file(&path) {
        Ok(key) => Ok(Unlock::Key(key)),
        Err(SecretFileError::Missing) if !store.exists() => {
            make_key_file(env, &path)
                .map_err(|error| Fatal::Config(format!("key file {}: {error}", path.display())))?;
            read_key_file(&path)
                .map(Unlock::Key)
                .map_err(|error| key_file_trouble(&path, &error))
        }
        Err(error) => Err(key_file_trouble(&path, &error)),
    }
}

/// Why the key file is of no use, for whoever has to mend it.
pub fn key_file_trouble(path: &Path, error: &SecretFileError) -> Fatal {
    let path = path.display();
    Fatal::Config(match error {
        SecretFileError::Missing => format!(
            "key file {path} does not exist, but the key store does: bring it back, nothing else opens the keys"
        ),
        SecretFileError::Open(_) => format!("key file {path}: {error}: run `chmod 600 {path}`"),
        error => format!("key file {path}: {error}"),
    })
}

pub fn read_key_file(path: &Path) -> Result<Secret, SecretFileError> {
    read_secret_file(path, KEY).map(Secret::new)
}

pub fn make_key_file(env: &Env, path: &Path) -> io::Result<()> {
    let key = Secret::random(KEY as usize, &mut |buf: &mut [u8]| env.fill_random(buf));
    make_secret_file(path, key.expose())
}
