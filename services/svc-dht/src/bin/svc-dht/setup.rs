//! What `serve` needs before anything runs: configuration, data directory, the node's key.

use std::{
    fs,
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
use svc_dht::{config::Config, identity::Identity};

/// What may be set on the command line; `SVC_DHT_*` variables and the file come after it.
#[derive(Args, Clone, Debug, Default)]
pub struct ConfigArgs {
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE", env = "SVC_DHT_CONFIG")]
    config: Option<PathBuf>,
    /// Set one key, as in `--set lookup.alpha=4`; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Join the network of this node, `host:port`; may be repeated, and adds to `bootstrap.seeds`
    #[arg(long = "join", value_name = "HOST:PORT")]
    join: Vec<String>,
    /// What is logged, as in `info,svc_dht=debug`
    #[arg(
        long,
        value_name = "FILTER",
        default_value = "info",
        env = "SVC_DHT_LOG"
    )]
    log: String,
    /// Log as JSON lines
    #[arg(long)]
    log_json: bool,
}

const PREFIX: &str = "SVC_DHT_";
/// Bytes of a node's key.
const SEED: u64 = 32;

impl ConfigArgs {
    fn sources(&self) -> Result<Sources, String> {
        let file = match &self.config {
            None => None,
            Some(path) => {
                let name = path.display().to_string();
                let text = fs::read_to_string(path).map_err(|e| format!("{name}: {e}"))?;
                Some((name, text))
            }
        };
        // Variables of the command line itself are no keys.
        let own = [
            "SVC_DHT_CONFIG",
            "SVC_DHT_LOG",
            "SVC_DHT_URL",
            "SVC_DHT_TOKEN",
        ];
        let env = std::env::vars().filter(|(name, _)| !own.contains(&name.as_str()));
        Ok(Sources {
            file,
            env: env.collect(),
            cli: self.set.clone(),
        })
    }

    pub fn load(&self) -> Result<Config, Fatal> {
        let sources = self.sources().map_err(Fatal::Config)?;
        let invalid = |errors: ConfigErrors| Fatal::Config(errors.to_string());
        let rules = |config: &Config| config.rules();
        let loaded = Reloadable::<Config>::load(&sources, PREFIX, rules).map_err(invalid)?;
        let mut config = (*loaded.current()).clone();
        config.bootstrap.seeds.extend(self.join.iter().cloned());
        match config.rules().first() {
            None => Ok(config),
            Some(broken) => Err(Fatal::Config(format!("`--join`: {}", broken.reason))),
        }
    }

    pub fn run_options(&self, config: &Config) -> RunOptions {
        RunOptions {
            tokio: TokioOptions {
                data: Data::Directory(config.data_dir.clone().into()),
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

/// Who this node is. The key file is made at the first start; one that others can read is refused.
pub fn identity(env: &Env, config: &Config) -> Result<Identity, Fatal> {
    let path = Path::new(&config.data_dir).join(&config.identity_file);
    let shown = path.display();
    let failed = |error: SecretFileError| {
        let help = match error {
            SecretFileError::Open(_) => format!(": run `chmod 600 {shown}`"),
            _ => String::new(),
        };
        Fatal::Config(format!("identity file {shown}: {error}{help}"))
    };
    let seed = match read_secret_file(&path, SEED) {
        Err(SecretFileError::Missing) => {
            let mut seed = [0; SEED as usize];
            env.fill_random(&mut seed);
            make_secret_file(&path, &seed).map_err(|error| failed(error.into()))?;
            read_secret_file(&path, SEED)
        }
        found => found,
    };
    let seed = seed.map_err(failed)?;
    let seed = seed.try_into().expect("its length was checked");
    Ok(Identity::from_seed(&seed))
}
