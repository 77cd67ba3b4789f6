//! Tokens of SoftHSM2. The module reads where they are from the environment, once per process: whoever needs
//! one runs in a child process with a token directory of its own.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use ron_kms::{
    backend::{Pkcs11Config, TokenName},
    keys::Secret,
};

use super::Scratch;

pub const MODULE: &str = "/usr/lib/softhsm/libsofthsm2.so";
pub const PIN: &str = "49152835";
pub const LABEL: &str = "ron test";

/// This very test program again, with these arguments and a fresh token; what it said if it fails.
pub fn in_child(arguments: &[&str]) -> Result<(), String> {
    let scratch = Scratch::new("pkcs11");
    let conf = make(scratch.path())?;
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let child = Command::new(program)
        .args(arguments)
        .env("SOFTHSM2_CONF", &conf)
        .output()
        .map_err(|error| error.to_string())?;
    match child.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&child.stderr).into_owned()),
    }
}

/// The token of this process.
pub fn config(pin: &str, sessions: usize) -> Pkcs11Config {
    Pkcs11Config {
        module: MODULE.into(),
        token: TokenName::Label(LABEL.to_owned()),
        pin: Secret::copy_of(pin.as_bytes()),
        sessions,
    }
}

fn make(dir: &Path) -> Result<PathBuf, String> {
    if !Path::new(MODULE).exists() {
        return Err("SoftHSM2 is missing: cargo xtask deps".into());
    }
    let (conf, tokens) = (dir.join("softhsm2.conf"), dir.join("tokens"));
    let text = format!(
        "directories.tokendir = {}\nobjectstore.backend = file\nlog.level = ERROR\n",
        tokens.display()
    );
    let made = std::fs::create_dir_all(&tokens).and_then(|()| std::fs::write(&conf, text));
    made.map_err(|error| error.to_string())?;
    let init = Command::new("softhsm2-util")
        .args(["--init-token", "--free", "--label", LABEL])
        .args(["--so-pin", "87654321", "--pin", PIN])
        .env("SOFTHSM2_CONF", &conf)
        .output()
        .map_err(|error| error.to_string())?;
    match init.status.success() {
        true => Ok(conf),
        false => Err(format!("{init:?}")),
    }
}
