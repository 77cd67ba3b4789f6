//! A service's real binary as a process of its own: built, started on a port of its choice, asked over plain
//! sockets, killed or told to stop.
//!
//! Always: nothing that is started outlives its owner; the binary is the one of the sources as they are.

#![allow(
    clippy::disallowed_methods,
    reason = "starts and ends processes, as an operator would"
)]

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Output, Stdio},
    sync::OnceLock,
    time::Duration,
};

/// How long a process or an answer may take before the test gives up on it.
const PATIENCE: Duration = Duration::from_secs(60);

/// The binary `ron-kms`, as the sources are now.
///
/// Cargo builds the binaries of other packages only with their own tests: after a run of the whole workspace,
/// as in CI, it is there already; any other run builds it here, once.
pub fn ron_kms() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| build("ron-kms").unwrap_or_else(|error| panic!("ron-kms: {error}")))
}

/// The binary `svc-dht`, as the sources are now.
pub fn svc_dht() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| build("svc-dht").unwrap_or_else(|error| panic!("svc-dht: {error}")))
}

fn build(name: &str) -> io::Result<PathBuf> {
    // Tests lie in TARGET/PROFILE/deps, binaries beside that directory.
    let test = std::env::current_exe()?;
    let lost = || io::Error::other("the test lies outside of a target directory");
    let profile = test.ancestors().nth(2).ok_or_else(lost)?;
    let target = profile.parent().ok_or_else(lost)?;
    let binary = profile.join(name);
    if is_fresh(&binary).unwrap_or(false) {
        return Ok(binary);
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--package", name, "--bin", name]);
    command.arg("--target-dir").arg(target);
    if profile.ends_with("release") {
        command.arg("--release");
    }
    let built = command.current_dir(xtask::tree::root()).output()?;
    match built.status.success() {
        true => Ok(binary),
        false => {
            let said = String::from_utf8_lossy(&built.stderr).into_owned();
            Err(io::Error::other(said))
        }
    }
}

/// Whether nothing that it was made from, by cargo's own list, is newer.
fn is_fresh(binary: &Path) -> io::Result<bool> {
    let changed = |path: &Path| fs::metadata(path)?.modified();
    let made = changed(binary)?;
    let listed = fs::read_to_string(binary.with_extension("d"))?;
    let Some((_, sources)) = listed.split_once(": ") else {
        return Ok(false);
    };
    let locked = xtask::tree::root().join("Cargo.lock");
    let mut all = sources.split_whitespace().map(Path::new).chain([&*locked]);
    Ok(all.all(|source| changed(source).is_ok_and(|at| at <= made)))
}

/// Runs a command that ends by itself; killed if it does not.
pub fn ends(command: &Command) -> Output {
    let mut bounded = Command::new("timeout");
    bounded.args(["--signal=KILL", &PATIENCE.as_secs().to_string()]);
    bounded.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => bounded.env(name, value),
            None => bounded.env_remove(name),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        bounded.current_dir(dir);
    }
    bounded.stdin(Stdio::null());
    let out = bounded.output();
    out.unwrap_or_else(|error| panic!("{:?}: {error}", command.get_program()))
}

/// A running service; killed when it is dropped.
pub struct Daemon {
    child: Child,
    out: BufReader<ChildStdout>,
    /// What it printed so far, line by line.
    pub printed: Vec<String>,
    pub addr: SocketAddr,
    errors: PathBuf,
}

/// How a service ended.
#[derive(Debug)]
pub struct Farewell {
    pub code: Option<i32>,
    /// All that it printed.
    pub printed: Vec<String>,
    /// All that it logged.
    pub logged: String,
}

impl Daemon {
    /// Starts `command` and waits until it says `… listens on http://ADDRESS`. What it logs goes to `errors`.
    pub fn start(mut command: Command, errors: &Path) -> Result<Daemon, Farewell> {
        let log = File::create(errors).unwrap_or_else(|e| panic!("{}: {e}", errors.display()));
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let spawned = command.stderr(log).spawn();
        let mut child = spawned.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let out = child.stdout.take().expect("it is piped");
        let mut daemon = Daemon {
            child,
            out: BufReader::new(out),
            printed: Vec::new(),
            addr: ([127, 0, 0, 1], 0).into(),
            errors: errors.to_owned(),
        };
        let greeting = daemon.read_until(|line| line.contains(" listens on "));
        let Some((_, url)) = greeting.as_deref().and_then(|l| l.split_once("://")) else {
            return Err(daemon.wait());
        };
        daemon.addr = url.parse().unwrap_or_else(|_| panic!("no address: {url}"));
        Ok(daemon)
    }

    /// Reads on until a line that is `wanted`; `None` if it ended before.
    pub fn read_until(&mut self, wanted: impl Fn(&str) -> bool) -> Option<String> {
        loop {
            let mut line = String::new();
            match self.out.read_line(&mut line) {
                Ok(1..) => {}
                _ => return None,
            }
            let line = line.trim_end_matches('\n').to_owned();
            self.printed.push(line.clone());
            if wanted(&line) {
                return Some(line);
            }
        }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL: nothing is finished.
    pub fn kill(mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it is ours");
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        let sent = Command::new("kill")
            .args(["-TERM", &self.id().to_string()])
            .status();
        assert!(sent.is_ok_and(|status| status.success()), "kill -TERM");
    }

    /// Tells it to stop and waits for its end.
    pub fn stop(self) -> Farewell {
        self.terminate();
        self.wait()
    }

    /// Waits for its end: its output ends with it.
    pub fn wait(mut self) -> Farewell {
        while self.read_until(|_| false).is_some() {}
        let code = self.child.wait().expect("it is ours").code();
        Farewell {
            code,
            printed: std::mem::take(&mut self.printed),
            logged: fs::read_to_string(&self.errors).unwrap_or_default(),
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An answer over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// The lines before the body.
    pub head: String,
    pub body: String,
}

/// One request on a connection of its own.
pub fn call(addr: SocketAddr, method: &str, path: &str, body: &str) -> io::Result<Answer> {
    call_with(addr, method, path, &[], body)
}

/// The same with more headers.
pub fn call_with(
    addr: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> io::Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&addr, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let more: String = headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {addr}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n{more}\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes())?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let broken = || io::Error::other(format!("no HTTP answer: {text}"));
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(broken)?;
    let status = head.get(9..12).and_then(|code| code.parse().ok());
    Ok(Answer {
        status: status.ok_or_else(broken)?,
        head: head.to_owned(),
        body: body.to_owned(),
    })
}

/// An empty directory, removed at the end.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("ron-{name}-{}", std::process::id()));
        let made = fs::create_dir_all(&path);
        made.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Scratch(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
