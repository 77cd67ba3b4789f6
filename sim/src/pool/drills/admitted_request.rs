//! A request to the door: several things wrong with it or none, and beside it what each of them means.

use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime},
};

use ron_core::auth::{Identity, Via};

use super::Bench;

/// What a caller may write as the time it has, and what that comes to.
const TIMEOUTS: [(&str, Option<u64>); 9] = [
    ("2", Some(2_000_000)),
    ("0.5", Some(500_000)),
    ("0.25", Some(250_000)),
    ("1.2345", Some(1_234_000)),
    ("0.001", Some(1_000)),
    ("0", Some(0)),
    ("soon", None),
    ("1e3", None),
    ("-1", None),
];
const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACED: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const UNTRACED: [&str; 3] = [
    "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
    "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
    "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
];

/// A request that is drawn.
#[derive(Debug)]
pub struct Asked {
    pub draining: bool,
    pub headers: Vec<(&'static str, String)>,
    /// The least time that one of them leaves, and how many are nonsense.
    pub within: Option<Duration>,
    pub malformed: u64,
    pub peer: Option<[u8; 4]>,
    /// Who it is, or why not.
    pub caller: Result<Identity, (u16, &'static str)>,
    /// `None` if one is drawn for it.
    pub corr_id: Option<String>,
    pub too_large: bool,
    pub encoded: bool,
}

impl Asked {
    /// `cap` is what a body may have.
    pub fn draw(bench: &mut Bench, cap: u64) -> Self {
        let mut asked = Asked {
            draining: bench.one_in(12),
            headers: Vec::new(),
            within: None,
            malformed: 0,
            peer: None,
            caller: Err((403, "untrusted_peer")),
            corr_id: None,
            too_large: bench.one_in(8),
            encoded: bench.one_in(8),
        };
        asked.draw_deadlines(bench);
        asked.draw_caller(bench);
        asked.draw_id(bench);
        let length = if asked.too_large { cap + 1 } else { cap };
        asked.headers.push(("content-length", length.to_string()));
        if asked.encoded {
            let coding = bench.one_of(&["br", "gzip, br", "deflate"]);
            asked.headers.push(("content-encoding", coding.to_owned()));
        } else if bench.one_in(4) {
            asked
                .headers
                .push(("content-encoding", "identity".to_owned()));
        }
        asked
    }

    fn draw_deadlines(&mut self, bench: &mut Bench) {
        for _ in 0..bench.one_of(&[0, 0, 1, 1, 2]) {
            let (text, left) = bench.one_of(&TIMEOUTS);
            self.headers.push(("request-timeout", text.to_owned()));
            self.leaves(left.map(Duration::from_micros));
        }
        if !bench.one_in(4) {
            return;
        }
        if bench.one_in(4) {
            self.headers.push(("deadline", "tomorrow".to_owned()));
            return self.leaves(None);
        }
        let epoch = bench.env.wall().duration_since(SystemTime::UNIX_EPOCH);
        let epoch = epoch.unwrap_or_default();
        let at = Duration::from_millis(epoch.as_millis() as u64) + bench.ms(0, 3000);
        let at = Duration::from_millis(at.as_millis() as u64);
        self.headers.push(("deadline", at.as_millis().to_string()));
        self.leaves(Some(at.saturating_sub(epoch)));
    }

    fn leaves(&mut self, left: Option<Duration>) {
        match left {
            Some(left) => self.within = Some(self.within.map_or(left, |least| least.min(left))),
            None => self.malformed += 1,
        }
    }

    fn draw_caller(&mut self, bench: &mut Bench) {
        let near = Some([10, 9, 8, 7]);
        self.peer = bench.one_of(&[near, near, near, near, Some([11, 9, 8, 7]), None]);
        let mut scopes = BTreeSet::new();
        for _ in 0..bench.pick(0, 3) {
            scopes.insert(bench.one_of(&["sign", "verify", "ops:read"]).to_owned());
        }
        let subject = bench.one_of(&["ada", "grace", "ada", "grace", "", "twice"]);
        let tenant = bench.one_of(&["", "acme"]);
        if subject == "twice" {
            self.headers.push(("x-user", "ada".to_owned()));
        }
        if !subject.is_empty() {
            self.headers.push(("x-user", format!(" {subject} ")));
        }
        let listed: Vec<&str> = scopes.iter().map(String::as_str).collect();
        self.headers.push(("x-groups", listed.join(" ,")));
        self.headers.push(("x-tenant", tenant.to_owned()));
        self.caller = match (self.peer, subject) {
            (Some([10, ..]), "") => Err((401, "missing_credentials")),
            (Some([10, ..]), "twice") => Err((401, "malformed_header")),
            (Some([10, ..]), _) => Ok(Identity {
                subject: subject.to_owned(),
                tenant: (!tenant.is_empty()).then(|| tenant.to_owned()),
                scopes,
                via: Via::Ingress,
            }),
            _ => Err((403, "untrusted_peer")),
        };
    }

    fn draw_id(&mut self, bench: &mut Bench) {
        let long = "i".repeat(64);
        let (own, sound) = match bench.pick(0, 5) {
            0 => (None, false),
            1 => (Some(long), true),
            2 => (Some(format!("{long}i")), false),
            3 => (Some("a b".to_owned()), false),
            _ => (Some(format!("A-{}_z.9", bench.pick(0, 99))), true),
        };
        let trace = match bench.pick(0, 3) {
            0 => Some(TRACE),
            1 => Some(bench.one_of(&UNTRACED)),
            _ => None,
        };
        self.headers
            .extend(own.clone().map(|own| ("x-corr-id", own)));
        let traced = trace.map(|trace| ("traceparent", trace.to_owned()));
        self.headers.extend(traced);
        self.corr_id = match (sound, trace) {
            (true, _) => own,
            (false, Some(TRACE)) => Some(TRACED.to_owned()),
            (false, _) => None,
        };
    }
}
