//! What the rounds came to: a row for each network, ratios with their bounds, and whether all of them hold.

use std::process::ExitCode;

use crate::child::{Check, Kind, Told};

const MOST_TO_BARE: f64 = 3.0;
const LEAST_TO_MAINLINE: f64 = 2.0;
const LEAST_TO_KAD: f64 = 8.0;
const MOST_REQUESTS: u32 = 26;

pub struct Table {
    pub rows: Vec<Row>,
}

pub struct Row {
    kind: Kind,
    pub check: Option<Check>,
    rounds: Vec<Told>,
    /// CPU time at rest, for each microsecond, before each of the rounds.
    idle: Vec<f64>,
}

impl Row {
    pub fn of(kind: Kind) -> Row {
        Row {
            kind,
            check: None,
            rounds: Vec::new(),
            idle: Vec::new(),
        }
    }

    pub fn add(&mut self, told: Told, idle: f64) {
        self.rounds.push(told);
        self.idle.push(idle);
    }

    /// CPU time of a lookup in a round, without what the network takes at rest.
    fn cpu_us(&self, round: usize) -> f64 {
        let told = &self.rounds[round];
        let work = told.cpu_us - self.idle[round] * told.wall_us;
        work / told.lookups().max(1) as f64
    }

    fn all(&self, of: impl Fn(&Told) -> &[u32]) -> Vec<u32> {
        let mut all: Vec<u32> = self
            .rounds
            .iter()
            .flat_map(|told| of(told).to_vec())
            .collect();
        all.sort_unstable();
        all
    }

    /// Of each lookup; datagrams where a network cannot tell its requests.
    fn requests(&self) -> Vec<u32> {
        let mut all = self.all(|told| &told.requests);
        if all.last() == Some(&0) {
            all = self
                .check
                .as_ref()
                .map_or(all, |check| check.requests.clone());
            all.sort_unstable();
        }
        all
    }

    fn print(&self) {
        let (low, cpu, high) = spread(self.rounds.len(), |round| self.cpu_us(round));
        let (requests, took) = (self.requests(), self.all(|told| &told.took_us));
        let lookups: usize = self.rounds.iter().map(Told::lookups).sum();
        let failed: u32 = self.rounds.iter().map(|told| told.failed).sum();
        let dialled: u64 = self.rounds.iter().map(|told| told.dialled).sum();
        let (_, idle, _) = spread(self.idle.len(), |round| self.idle[round]);
        println!(
            "{:14} {cpu:8.0} {:>17} {:>9} {:>13} {:>8} {failed:>6} {dialled:>7} {:>7} {:6.1}%",
            self.kind.name(),
            format!("({low:.0} to {high:.0})"),
            format!("{} / {}", part(&requests, 50), part(&requests, 99)),
            format!(
                "{:.1} / {:.1}",
                f64::from(part(&took, 50)) / 1e3,
                f64::from(part(&took, 99)) / 1e3
            ),
            lookups,
            match &self.check {
                Some(check) if self.kind != Kind::Bare => format!("{:.3}", check.recall),
                _ => String::new(),
            },
            idle * 100.0,
        );
    }
}

impl Table {
    pub fn new(rows: Vec<Row>) -> Table {
        Table { rows }
    }

    pub fn print(&self) -> ExitCode {
        println!(
            "{:14} {:>8} {:>17} {:>9} {:>13} {:>8} {:>6} {:>7} {:>7} {:>7}",
            "", "CPU us", "", "requests", "ms", "lookups", "failed", "dialled", "recall", "at rest"
        );
        self.rows.iter().for_each(Row::print);
        println!("requests and time of a lookup: p50 / p99; of mainline datagrams, both ways");
        let ours = self.row(Kind::Ours);
        let rounds = ours.rounds.len();
        let to_ours = |kind| {
            let other = self.row(kind);
            spread(rounds, |round| other.cpu_us(round) / ours.cpu_us(round))
        };
        let bare = self.row(Kind::Bare);
        let to_bare = spread(rounds, |round| ours.cpu_us(round) / bare.cpu_us(round));
        let mut good = bound(
            "CPU of svc-dht to the bare loop",
            to_bare,
            |x| x <= MOST_TO_BARE,
            "at most 3",
        );
        good &= bound(
            "CPU of mainline to svc-dht",
            to_ours(Kind::Mainline),
            |x| x >= LEAST_TO_MAINLINE,
            "at least 2",
        );
        good &= bound(
            "CPU of libp2p-kad to svc-dht",
            to_ours(Kind::Kad),
            |x| x >= LEAST_TO_KAD,
            "at least 8",
        );
        let most = part(&ours.requests(), 99);
        let holds = most <= MOST_REQUESTS;
        println!(
            "requests of svc-dht at p99: {most}, at most {MOST_REQUESTS}: {}",
            verdict(holds)
        );
        good &= holds;
        let failed = ours.rounds.iter().any(|told| told.failed > 0);
        if failed {
            println!("lookups of svc-dht failed");
        }
        match good && !failed {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        }
    }

    fn row(&self, kind: Kind) -> &Row {
        let row = self.rows.iter().find(|row| row.kind == kind);
        row.expect("every network has a row")
    }
}

fn bound(what: &str, of: (f64, f64, f64), holds: impl Fn(f64) -> bool, text: &str) -> bool {
    let (low, median, high) = of;
    let good = holds(median);
    println!(
        "{what}: {median:.2}x ({low:.2} to {high:.2}), {text}: {}",
        verdict(good)
    );
    good
}

fn verdict(holds: bool) -> &'static str {
    if holds { "ok" } else { "OUT OF BOUNDS" }
}

/// Least, median and most over the rounds: one disturbed round does not count.
fn spread(rounds: usize, of: impl Fn(usize) -> f64) -> (f64, f64, f64) {
    let mut all: Vec<f64> = (0..rounds).map(of).collect();
    all.sort_by(f64::total_cmp);
    let middle = (all[(rounds - 1) / 2] + all[rounds / 2]) / 2.0;
    (all[0], middle, all[rounds - 1])
}

/// Of a sorted list, the value that so many percent do not exceed.
fn part(sorted: &[u32], percent: usize) -> u32 {
    let at = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(at).copied().unwrap_or(0)
}
