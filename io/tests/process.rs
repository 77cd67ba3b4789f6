//! Whole processes: signals and exit codes. This binary is both the test and, when told by its
//! environment, the service under test.

#![allow(clippy::disallowed_methods)] // test code of the Tokio side itself

use std::{
    env,
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    process::{Child, Command, ExitCode, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use libtest_mimic::{Arguments, Trial};
use ron_core::seam::Pool;
use ron_io::{Data, Fatal, Logs, RunOptions, Running, TokioOptions, run};

const ROLE: &str = "RON_IO_TEST_ROLE";

fn main() -> ExitCode {
    if let Ok(role) = env::var(ROLE) {
        return run(|| load(&role), service);
    }
    let trials: [(&str, fn()); 7] = [
        ("a_signal_stops_the_service_cleanly", signal_stops),
        (
            "a_second_signal_ends_a_stuck_process_at_once",
            second_signal,
        ),
        ("a_hangup_asks_for_a_reload_each_time", hangup_reloads),
        ("bad_configuration_is_one_line_and_exit_code_2", bad_config),
        ("a_port_in_use_names_the_address_and_exits_2", port_in_use),
        ("a_failure_is_one_line_without_backtrace", failures),
        (
            "abandoned_offloads_do_not_hold_the_process",
            abandoned_offload,
        ),
    ];
    let trials = trials.map(|(name, test)| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.into()).exit_code()
}

// ------------------------------------------------------------------------------ the service side

fn load(role: &str) -> Result<(String, RunOptions), Fatal> {
    if role == "bad-config" {
        return Err(Fatal::Config("`port` is\n  not a number".into()));
    }
    let filter = if role == "bad-filter" {
        "a=b=c"
    } else {
        "info"
    };
    let options = RunOptions {
        tokio: TokioOptions {
            data: Data::Memory {
                limit_bytes: 1 << 20,
            },
            extra_ca_pem: None,
        },
        logs: Logs {
            filter: filter.into(),
            json: false,
        },
        worker_threads: Some(2),
        listen: match env::var("ADDR") {
            Ok(addr) => vec![addr.parse().unwrap()],
            Err(_) => Vec::new(),
        },
    };
    Ok((role.to_owned(), options))
}

async fn service(mut running: Running<String>) -> Result<(), Fatal> {
    match running.config.as_str() {
        "polite" => {
            say("ready");
            running.stop.wait().await;
            say("stopping");
        }
        "stuck" => {
            say("ready");
            running.stop.wait().await;
            say("stopping");
            // Not even the runtime moves any more.
            thread::sleep(Duration::from_secs(600));
        }
        "reload" => {
            say("ready");
            loop {
                tokio::select! {
                    biased;
                    () = running.stop.wait() => break,
                    changed = running.reload.changed() => changed.unwrap(),
                }
                say(&format!("reload {}", *running.reload.borrow_and_update()));
            }
            say("stopping");
        }
        "panic" => panic!("a bug\nof two lines"),
        "fail" => return Err(Fatal::Failed("the ledger is gone".into())),
        "offload" => {
            drop(running.env.offload(Pool::CPU, || {
                thread::sleep(Duration::from_secs(600));
            }));
        }
        role => panic!("no such role: {role}"),
    }
    Ok(())
}

fn say(line: &str) {
    println!("{line}");
    std::io::stdout().flush().unwrap();
}

// ------------------------------------------------------------------------------- the test's side

struct Process {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Process {
    fn start(role: &str, vars: &[(&str, String)]) -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .env(ROLE, role)
            .env("RUST_BACKTRACE", "1")
            .envs(vars.iter().map(|(k, v)| (k, v)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (tell, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let _ = tell.send(line);
            }
        });
        Process { child, lines }
    }

    fn expect(&self, line: &str) {
        let said = self.lines.recv_timeout(Duration::from_secs(30));
        assert_eq!(said.as_deref(), Ok(line));
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args([&format!("-{name}"), &self.child.id().to_string()])
            .status();
        assert!(sent.unwrap().success());
    }

    /// Exit code and stderr.
    fn ended(mut self) -> (Option<i32>, String) {
        let (tell, ended) = mpsc::channel();
        let id = self.child.id();
        thread::spawn(move || {
            let mut stderr = String::new();
            let mut pipe = self.child.stderr.take().unwrap();
            pipe.read_to_string(&mut stderr).unwrap();
            let _ = tell.send((self.child.wait().unwrap().code(), stderr));
        });
        ended
            .recv_timeout(Duration::from_secs(30))
            .unwrap_or_else(|_| panic!("process {id} does not end"))
    }
}

fn signal_stops() {
    // proves: ADM-6.1, KMS-6.1, DHT-6.1, EDG-6.1
    for name in ["INT", "TERM"] {
        let process = Process::start("polite", &[]);
        process.expect("ready");
        process.signal(name);
        process.expect("stopping");
        assert_eq!(process.ended(), (Some(0), String::new()), "{name}");
    }
}

fn second_signal() {
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        let process = Process::start("stuck", &[]);
        process.expect("ready");
        process.signal("TERM");
        process.expect("stopping");
        process.signal(name);
        assert_eq!(process.ended().0, Some(code), "{name}");
    }
}

fn hangup_reloads() {
    let process = Process::start("reload", &[]);
    process.expect("ready");
    for count in 1..=3 {
        process.signal("HUP");
        process.expect(&format!("reload {count}"));
    }
    process.signal("TERM");
    process.expect("stopping");
    assert_eq!(process.ended().0, Some(0));
}

fn bad_config() {
    for (role, told) in [
        ("bad-config", "`port` is not a number"),
        ("bad-filter", "log filter `a=b=c`"),
    ] {
        let (code, stderr) = Process::start(role, &[]).ended();
        assert_eq!(code, Some(2), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        assert!(
            stderr.starts_with("error: invalid configuration: "),
            "{stderr}"
        );
        assert!(stderr.contains(told), "{stderr}");
    }
}

fn port_in_use() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    let process = Process::start("listen", &[("ADDR", addr.clone())]);
    let told = format!("error: cannot listen on {addr}: the address is in use\n");
    assert_eq!(process.ended(), (Some(2), told));
}

fn failures() {
    let told = "error: the ledger is gone\n".to_owned();
    assert_eq!(Process::start("fail", &[]).ended(), (Some(1), told));

    let (code, stderr) = Process::start("panic", &[]).ended();
    assert_eq!(code, Some(1));
    assert_eq!(stderr.lines().count(), 2, "{stderr}");
    assert!(stderr.contains("a bug of two lines"), "{stderr}");
    assert!(
        stderr.ends_with("error: the service panicked\n"),
        "{stderr}"
    );
}

fn abandoned_offload() {
    let process = Process::start("offload", &[]);
    assert_eq!(process.ended(), (Some(0), String::new()));
}
