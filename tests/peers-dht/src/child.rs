//! A network in a process of its own: what the parent asks of it, and how it answers. One line each way.

use std::{
    fmt,
    io::{BufRead, BufReader, Write},
    process::{Child as Process, ChildStdin, ChildStdout, Command, ExitCode, Stdio},
    time::Duration,
};

use rustix::{
    process::{Resource, getrlimit, setrlimit},
    time::{ClockId, clock_gettime},
};

use crate::{
    bare::Bare,
    drive::{self, Network},
    kad::Kad,
    mainline_net::Mainline,
    ours::Ours,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Bare,
    Ours,
    /// With connections that are closed before each lookup.
    OursCold,
    Mainline,
    Kad,
}

impl Kind {
    const ALL: [Kind; 5] = [
        Kind::Bare,
        Kind::Ours,
        Kind::OursCold,
        Kind::Mainline,
        Kind::Kad,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Bare => "bare loop",
            Kind::Ours => "svc-dht",
            Kind::OursCold => "svc-dht, cold",
            Kind::Mainline => "mainline",
            Kind::Kad => "libp2p-kad",
        }
    }

    fn argument(self) -> &'static str {
        match self {
            Kind::Bare => "--network-bare",
            Kind::Ours => "--network-ours",
            Kind::OursCold => "--network-cold",
            Kind::Mainline => "--network-mainline",
            Kind::Kad => "--network-kad",
        }
    }

    pub fn of_argument(argument: &str) -> Option<Kind> {
        Kind::ALL
            .into_iter()
            .find(|kind| kind.argument() == argument)
    }
}

/// What a round came to.
#[derive(Clone, Debug, Default)]
pub struct Told {
    pub cpu_us: f64,
    pub wall_us: f64,
    /// Of each lookup that ended well.
    pub requests: Vec<u32>,
    pub took_us: Vec<u32>,
    pub failed: u32,
    /// Connections that were dialled meanwhile.
    pub dialled: u64,
}

impl Told {
    pub fn lookups(&self) -> usize {
        self.took_us.len()
    }
}

/// What lookups one after the other came to, outside of all rounds.
#[derive(Clone, Debug, Default)]
pub struct Check {
    /// Of the k closest nodes there are, how many were found.
    pub recall: f64,
    /// Requests of each; datagrams where the network cannot tell.
    pub requests: Vec<u32>,
}

/// What svc-dht sends, for the bare loop to send the same.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shape {
    pub request_bytes: usize,
    pub answer_bytes: usize,
    pub requests: usize,
    /// That an asker made.
    pub connections: usize,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} requests a lookup of {} bytes, answers of {} bytes, {} connections that each asker made",
            self.requests, self.request_bytes, self.answer_bytes, self.connections
        )
    }
}

impl Shape {
    pub fn arguments(&self) -> Vec<String> {
        let numbers = [
            self.request_bytes,
            self.answer_bytes,
            self.requests,
            self.connections,
        ];
        numbers.map(|n| n.to_string()).into()
    }

    fn of_arguments(arguments: &[String]) -> Shape {
        let mut numbers = arguments.iter().map(|n| n.parse().expect("a number"));
        let mut next = || numbers.next().expect("four numbers");
        Shape {
            request_bytes: next(),
            answer_bytes: next(),
            requests: next(),
            connections: next(),
        }
    }
}

// ------------------------------------------------------------------------------------- the parent's side

pub struct Child {
    pub kind: Kind,
    process: Process,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Child {
    /// To be waited for: see [`Child::until_ready`].
    pub fn start(kind: Kind, arguments: &[String]) -> Child {
        let mut process = Command::new(std::env::current_exe().expect("this program"))
            .arg(kind.argument())
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let stdin = process.stdin.take().expect("its input");
        let stdout = BufReader::new(process.stdout.take().expect("its output"));
        Child {
            kind,
            process,
            stdin,
            stdout,
        }
    }

    /// Returns when the network stands and its connections are warm.
    pub fn until_ready(mut self) -> Child {
        assert_eq!(self.line(), ["ready"], "{}", self.kind.name());
        self
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    pub fn round(&mut self, time: Duration, seed: u64) -> Told {
        let words = self.ask(format!("round {} {seed}", time.as_micros()));
        Told {
            cpu_us: number(&words[0]),
            wall_us: number(&words[1]),
            failed: number(&words[2]) as u32,
            dialled: number(&words[3]) as u64,
            requests: numbers(&words[4]),
            took_us: numbers(&words[5]),
        }
    }

    /// CPU time for each microsecond in which nobody asks anything.
    pub fn idle(&mut self, time: Duration) -> f64 {
        number(&self.ask(format!("idle {}", time.as_micros()))[0])
    }

    pub fn check(&mut self) -> Check {
        let words = self.ask("check".to_owned());
        Check {
            recall: number(&words[0]),
            requests: numbers(&words[1]),
        }
    }

    pub fn shape(&mut self) -> Shape {
        Shape::of_arguments(&self.ask("shape".to_owned()))
    }

    fn ask(&mut self, what: String) -> Vec<String> {
        writeln!(self.stdin, "{what}").expect("it listens");
        self.line()
    }

    fn line(&mut self) -> Vec<String> {
        let mut line = String::new();
        let _ = self.stdout.read_line(&mut line);
        assert!(!line.is_empty(), "{} ended", self.kind.name());
        line.split_whitespace().map(str::to_owned).collect()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn number(word: &str) -> f64 {
    word.parse().expect("a number")
}

fn numbers(word: &str) -> Vec<u32> {
    let all = word.trim_matches(['[', ']']).split(',');
    all.filter_map(|n| n.parse().ok()).collect()
}

// -------------------------------------------------------------------------------------- the child's side

pub fn serve(kind: Kind, arguments: &[String]) -> ExitCode {
    let most = getrlimit(Resource::Nofile);
    let mut raised = most;
    raised.current = most.maximum;
    setrlimit(Resource::Nofile, raised).expect("a soft limit may be raised");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let arguments = arguments.to_vec();
    runtime.block_on(async move {
        match kind {
            Kind::Bare => obey(Bare::start(Shape::of_arguments(&arguments)).await).await,
            Kind::Ours => obey(Ours::start(false).await).await,
            Kind::OursCold => obey(Ours::start(true).await).await,
            Kind::Mainline => obey(Mainline::start()).await,
            Kind::Kad => obey(Kad::start().await).await,
        }
    });
    // The parent is gone or done; nobody waits for an orderly end of hundreds of nodes.
    std::process::exit(0)
}

async fn obey<N: Network>(network: N) {
    let network: &'static N = Box::leak(Box::new(network));
    drive::warm(network).await;
    say("ready".to_owned());
    loop {
        let Some(words) = tokio::task::spawn_blocking(next_line).await.ok().flatten() else {
            return;
        };
        let micros = |at: usize| words.get(at).and_then(|n| n.parse().ok()).unwrap_or(0);
        match words[0].as_str() {
            "round" => {
                let (cpu, dialled) = (cpu_us(), network.dialled());
                let (time, seed) = (Duration::from_micros(micros(1)), micros(2));
                let driven = drive::round(network, time, seed).await;
                let cpu = cpu_us() - cpu;
                let dialled = network.dialled() - dialled;
                say(format!(
                    "{cpu} {} {} {dialled} {} {}",
                    driven.wall.as_micros(),
                    driven.failed,
                    list(&driven.requests),
                    list(&driven.took_us),
                ));
            }
            "idle" => {
                let (cpu, time) = (cpu_us(), Duration::from_micros(micros(1)));
                tokio::time::sleep(time).await;
                say(format!("{}", (cpu_us() - cpu) / time.as_micros() as f64));
            }
            "check" => {
                let check = drive::check(network).await;
                say(format!("{} {}", check.recall, list(&check.requests)));
            }
            "shape" => say(network.shape().await.arguments().join(" ")),
            other => panic!("what is {other}"),
        }
    }
}

fn next_line() -> Option<Vec<String>> {
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line).ok()?;
    (read > 0).then(|| line.split_whitespace().map(str::to_owned).collect())
}

fn say(line: String) {
    println!("{line}");
}

fn list(of: &[u32]) -> String {
    let words: Vec<String> = of.iter().map(u32::to_string).collect();
    format!("[{}]", words.join(","))
}

/// User and system time of all threads of this process.
fn cpu_us() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}
