//! The load: keep-alive connections that ask one after the other, as cheaply as can be.
//!
//! Requests are written ahead of time, answers only measured and counted. The CPU time of the clients is this
//! process's own and told apart from the servers'.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    runtime::{Builder, Runtime},
};

use crate::servers::process_cpu;

pub struct Clients {
    pub runtime: Runtime,
    polling: Runtime,
}

/// What clients do while they wait for answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Sleep, and leave the cores to the server: for what is measured in answers per second.
    Asleep,
    /// Look again and again: for what is measured in CPU time. Whoever answers a sleeper pays for waking it,
    /// and a slow server, whose clients sleep more, pays more often than a fast one.
    Awake,
}

/// One round against one server.
#[derive(Clone, Debug, Default)]
pub struct Round {
    pub answers: u64,
    pub failures: u64,
    pub took: Duration,
    pub server_cpu: Duration,
    pub client_cpu: Duration,
    latencies_us: Vec<u32>,
}

impl Round {
    pub fn per_s(&self) -> f64 {
        self.answers as f64 / self.took.as_secs_f64()
    }

    /// CPU time of the server per answer.
    pub fn server_us(&self) -> f64 {
        self.server_cpu.as_secs_f64() * 1e6 / self.answers.max(1) as f64
    }

    fn client_us(&self) -> f64 {
        self.client_cpu.as_secs_f64() * 1e6 / self.answers.max(1) as f64
    }
}

impl Clients {
    pub fn start() -> Clients {
        let mut two = Builder::new_multi_thread();
        let runtime = two.worker_threads(2).enable_all().build();
        let polling = Builder::new_current_thread().enable_all().build();
        Clients {
            runtime: runtime.expect("a runtime"),
            polling: polling.expect("a runtime"),
        }
    }

    /// As many requests as fit into the time.
    pub fn press(
        &self,
        waiting: Waiting,
        addr: SocketAddr,
        request: &[u8],
        conns: usize,
        time: Duration,
    ) -> Round {
        let request: Arc<[u8]> = request.into();
        let runtime = match waiting {
            Waiting::Asleep => &self.runtime,
            Waiting::Awake => &self.polling,
        };
        runtime.block_on(async {
            // Something to do at all times keeps the one thread from sleeping.
            let awake = (waiting == Waiting::Awake).then(|| tokio::spawn(never_sleep()));
            let mut open = Vec::new();
            for _ in 0..conns {
                open.push(Connection::open(addr).await);
            }
            let cpu = process_cpu(std::process::id());
            let start = Instant::now();
            let asking: Vec<_> = open
                .into_iter()
                .map(|conn| tokio::spawn(conn.ask_until(request.clone(), start + time)))
                .collect();
            let mut round = Round::default();
            for asked in asking {
                let (latencies, failures) = asked.await.expect("a client");
                round.answers += latencies.len() as u64;
                round.failures += failures;
                round.latencies_us.extend(latencies);
            }
            if let Some(awake) = awake {
                awake.abort();
            }
            round.took = start.elapsed();
            round.client_cpu = process_cpu(std::process::id()) - cpu;
            round
        })
    }

    /// One request on a connection of its own: status and body.
    pub fn ask(&self, addr: SocketAddr, request: &[u8]) -> (u16, String) {
        self.runtime.block_on(async {
            let mut conn = Connection::open(addr).await;
            let status = conn.ask(request).await;
            let body = &conn.buffer[conn.body.clone()];
            (status, String::from_utf8_lossy(body).into_owned())
        })
    }
}

async fn never_sleep() {
    loop {
        tokio::task::yield_now().await;
    }
}

pub fn request(path: &str, header: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: bench\r\n{header}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// Prints the medians of the rounds; returns how many answers were no success.
pub fn print_row(name: &str, conns: usize, rounds: &mut [Round]) -> u64 {
    let median = |of: fn(&Round) -> f64| {
        let mut all: Vec<f64> = rounds.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let (rate, server) = (median(Round::per_s), median(Round::server_us));
    let client = median(Round::client_us);
    let mut latencies: Vec<u32> = Vec::new();
    for round in rounds.iter_mut() {
        latencies.append(&mut round.latencies_us);
    }
    latencies.sort_unstable();
    let at = |percent: usize| latencies[(latencies.len() - 1) * percent / 100];
    println!(
        "{name:24} {conns:>5} {rate:>10.0} {server:>12.1} {client:>12.1} {:>9} {:>9}",
        at(50),
        at(99)
    );
    rounds.iter().map(|round| round.failures).sum()
}

struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    body: std::ops::Range<usize>,
}

impl Connection {
    async fn open(addr: SocketAddr) -> Connection {
        let stream = TcpStream::connect(addr).await.expect("a connection");
        stream.set_nodelay(true).expect("no delay");
        Connection {
            stream,
            buffer: vec![0; 64 * 1024],
            body: 0..0,
        }
    }

    async fn ask_until(mut self, request: Arc<[u8]>, end: Instant) -> (Vec<u32>, u64) {
        let (mut latencies, mut failures) = (Vec::new(), 0);
        let mut now = Instant::now();
        while now < end {
            if self.ask(&request).await != 200 {
                failures += 1;
            }
            let after = Instant::now();
            latencies.push((after - now).as_micros() as u32);
            now = after;
        }
        (latencies, failures)
    }

    /// Sends a request and reads its answer to the end.
    async fn ask(&mut self, request: &[u8]) -> u16 {
        self.stream.write_all(request).await.expect("a request");
        let mut got = 0;
        loop {
            let read = self.stream.read(&mut self.buffer[got..]).await;
            let read = read.expect("an answer");
            assert_ne!(read, 0, "closed in the middle");
            got += read;
            if let Some((status, body)) = head(&self.buffer[..got])
                && got >= body.end
            {
                self.body = body;
                return status;
            }
        }
    }
}

/// The status and where the body is, once the head is whole.
fn head(bytes: &[u8]) -> Option<(u16, std::ops::Range<usize>)> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&bytes[..end]).expect("a head of text");
    let status = head.get(9..12).and_then(|digits| digits.parse().ok());
    let length = head
        .split("\r\n")
        .find_map(|line| line.strip_prefix("content-length: "))
        .expect("an answer with its length");
    let length: usize = length.parse().expect("a number");
    Some((status.expect("a status"), end..end + length))
}
