//! What opens the key store of a configuration: a key file, made at the first start, or a passphrase.

use std::{
    io,
    path::{Path, PathBuf},
};

use ron_core::Env;
use ron_io::{Fatal, SecretFileError, make_secret_file, read_secret_file};

use crate::{
    config::{BackendKind, Config},
    keys::Secret,
    keystore::{FILE, Unlock},
};

/// Bytes of a key-encryption key.
const KEY: u64 = 32;

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
    let (store, log) = (
        store_file(config),
        Path::new(&config.data_dir).join("audit/log"),
    );
    if !store.exists() && log.exists() {
        return Err(Fatal::Config(format!(
            "{} is gone, but its audit log is there: bring the key store back from a backup, or move {} away to begin with no keys",
            store.display(),
            log.with_file_name("").display(),
        )));
    }
    let passphrase = config.store.passphrase.reveal();
    if !passphrase.is_empty() {
        return Ok(Unlock::Passphrase(Secret::copy_of(passphrase.as_bytes())));
    }
    let path = key_file(config, &config.store.key_file);
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
