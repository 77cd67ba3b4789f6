//! The contract suite on Tokio: every case on a fresh runtime, over real sockets and a real directory,
//! and the disk cases once more on the disk that forgets.

#![allow(clippy::disallowed_methods)] // test code of the Tokio side itself

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use contract::{Case, Pair};
use libtest_mimic::{Arguments, Failed, Trial};
use ron_core::Env;
use ron_io::{Data, TokioOptions, TokioRuntime};

/// A case that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let args = Arguments::from_args();
    let real = contract::cases()
        .into_iter()
        .map(|case| Trial::test(case.name, move || run(case, false)));
    let forgetful = contract::cases()
        .into_iter()
        .filter(|case| case.name.starts_with("disk::"))
        .map(|case| Trial::test(format!("memory_{}", case.name), move || run(case, true)));
    libtest_mimic::run(&args, real.chain(forgetful).collect()).exit_code()
}

fn run(case: Case, in_memory: bool) -> Result<(), Failed> {
    let root = Root::new(case.name);
    let data = if in_memory {
        Data::Memory {
            limit_bytes: 1 << 20,
        }
    } else {
        Data::Directory(root.0.clone())
    };
    let options = TokioOptions {
        data,
        extra_ca_pem: None,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let env = Env::new(TokioRuntime::new(runtime.handle().clone(), &options)?);
    let pair = Pair {
        server: env.clone(),
        client: env,
        server_ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
        server_name: "localhost",
    };
    let ended = runtime.block_on(async { tokio::time::timeout(LIMIT, (case.run)(pair)).await });
    runtime.shutdown_background();
    ended.map_err(|_| Failed::from("the case hangs"))
}

/// A directory of its own, gone when dropped.
struct Root(PathBuf);

impl Root {
    fn new(name: &str) -> Self {
        let unique = format!("ron-io-{}-{}", std::process::id(), name.replace("::", "-"));
        let root = std::env::temp_dir().join(unique);
        let _ = fs::remove_dir_all(&root);
        Root(root)
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
