//! The file with the node's key.

use std::path::Path;

use ron_core::Env;
use ron_io::{Fatal, SecretFileError, make_secret_file, read_secret_file};

use crate::{config::Config, identity::Identity};

/// Bytes of a node's key.
const SEED: u64 = 32;

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
