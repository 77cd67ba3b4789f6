//! The command line that every service has: where its configuration comes from, how it says what it does, how a
//! running one is asked.
//!
//! Always: a closed pipe stops nothing; a mistake of the operator is one line and exit code 2, before anything is
//! bound or made; variables that the command line itself reads are never mistaken for keys.

mod ask;
mod operate;
mod serve;

use std::{fs, path::PathBuf};

use clap::Args;
use ron_core::config::{ConfigErrors, Sources};

pub use self::{
    ask::{AskArgs, Client, ask, encoded},
    operate::{OperateArgs, operate},
    serve::{Launch, serve, serve_only, with_store},
};
use crate::Logs;

/// A line on stdout. Nobody has to read it: a reader that went away, as in `ron-kms serve | head -1`, stops nothing.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => {{
        let _ = ::std::io::Write::write_fmt(
            &mut ::std::io::stdout(),
            ::std::format_args!("{}\n", ::std::format_args!($($text)*)),
        );
    }};
}

/// A service's program.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// As in `ron-kms`; its variables begin with `RON_KMS_`.
    pub name: &'static str,
    pub version: &'static str,
    /// Where a running one is asked, unless the caller says otherwise.
    pub url: &'static str,
}

/// What the command line itself reads from the environment, after the prefix. No service has keys of these names.
const OWN: [&str; 4] = ["CONFIG", "LOG", "URL", "TOKEN"];

impl Program {
    /// Of its variables.
    pub fn prefix(&self) -> String {
        format!("{}_", self.name.to_ascii_uppercase().replace('-', "_"))
    }

    /// One of [`OWN`]; an empty one is as good as none.
    fn own(&self, name: &str) -> Option<String> {
        let value = std::env::var(self.prefix() + name).ok();
        value.filter(|value| !value.is_empty())
    }
}

/// What may be set on the command line; the program's variables and the file come after it.
#[derive(Args, Clone, Debug, Default)]
pub struct ConfigArgs {
    /// Configuration file (TOML); if absent, the one that the program's variable ..._CONFIG names
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Set one key, as in `--set auth.mode=none`; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// What is logged, as in `info,ron_core=debug`; if absent, by ..._LOG, or `info`
    #[arg(long, value_name = "FILTER")]
    pub log: Option<String>,
    /// Log as JSON lines
    #[arg(long)]
    pub log_json: bool,
}

impl ConfigArgs {
    fn file(&self, program: &Program) -> Option<PathBuf> {
        let named = || program.own("CONFIG").map(PathBuf::from);
        self.config.clone().or_else(named)
    }

    /// Read anew at each reload.
    pub fn sources(&self, program: &Program) -> Result<Sources, ConfigErrors> {
        let read = |path: PathBuf| {
            let name = path.display().to_string();
            match fs::read_to_string(&path) {
                Ok(text) => Ok((name, text)),
                Err(error) => Err(ConfigErrors::of_file(&name, "", error)),
            }
        };
        Ok(Sources {
            file: self.file(program).map(read).transpose()?,
            env: keys_only(&program.prefix(), std::env::vars_os()),
            cli: self.set.clone(),
        })
    }

    fn logs(&self, program: &Program) -> Logs {
        let filter = self.log.clone().or_else(|| program.own("LOG"));
        Logs {
            filter: filter.unwrap_or_else(|| "info".to_owned()),
            json: self.log_json,
        }
    }
}

/// Variables that may set keys. One that is no text sets none.
fn keys_only(
    prefix: &str,
    vars: impl Iterator<Item = (std::ffi::OsString, std::ffi::OsString)>,
) -> Vec<(String, String)> {
    let own = |name: &str| name.strip_prefix(prefix).is_some_and(|n| OWN.contains(&n));
    let text = vars.filter_map(|(name, value)| {
        let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
        (!own(&name)).then_some((name, value))
    });
    text.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_the_command_line_are_no_keys() {
        let program = Program {
            name: "svc-x",
            version: "",
            url: "",
        };
        assert_eq!(program.prefix(), "SVC_X_");
        let vars = [
            "SVC_X_CONFIG",
            "SVC_X_LOG",
            "SVC_X_URL",
            "SVC_X_TOKEN",
            "SVC_X_BIND",
            "URL",
        ];
        let vars = vars.map(|name| (name.into(), "v".into())).into_iter();
        let kept = keys_only(&program.prefix(), vars);
        let kept: Vec<&str> = kept.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(kept, ["SVC_X_BIND", "URL"]);
    }
}
