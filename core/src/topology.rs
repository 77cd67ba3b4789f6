//! What a service is made of: each task, queue, lock and timeout declares itself here, once.
//!
//! The code builds each part from the declaration it gets back, and the docs' tables are rendered from the
//! same list, so the two cannot drift apart. The order of the rendering never depends on the order of calls.

use std::{
    fmt::{Debug, Write},
    time::Duration,
};

pub use crate::lock::LockDecl;
use crate::{
    config::{Apply, KeyDecl},
    telemetry::MetricDecl,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskDecl {
    pub name: &'static str,
    /// The `kind` label of its metrics.
    pub kind: &'static str,
    /// How many run: `"1"`, `"workers"`, `"one per bucket"`.
    pub count: &'static str,
    pub does: &'static str,
    /// What its failure means for the service.
    pub on_failure: &'static str,
}

/// `P` is the queue's overflow policy, as the queue takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueDecl<P> {
    pub name: &'static str,
    pub cap: usize,
    /// The config key that sets the capacity, if one does.
    pub cap_key: Option<&'static str>,
    pub policy: P,
    pub producers: &'static str,
    pub consumers: &'static str,
    /// What the one who finds it full sees, and where it is counted.
    pub when_full: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeoutDecl {
    pub name: &'static str,
    pub after: Duration,
    pub key: Option<&'static str>,
    pub on_expiry: &'static str,
}

#[derive(Debug)]
pub struct Topology {
    service: &'static str,
    tasks: Vec<TaskDecl>,
    queues: Vec<QueueDecl<String>>,
    locks: Vec<LockDecl>,
    timeouts: Vec<TimeoutDecl>,
}

impl Topology {
    pub fn new(service: &'static str) -> Self {
        Topology {
            service,
            tasks: Vec::new(),
            queues: Vec::new(),
            locks: Vec::new(),
            timeouts: Vec::new(),
        }
    }

    /// # Panics
    /// Here and below: if the name was declared before and differently.
    pub fn task(&mut self, decl: TaskDecl) -> TaskDecl {
        declare(&mut self.tasks, decl, |d| d.name);
        decl
    }

    pub fn queue<P: Debug>(&mut self, decl: QueueDecl<P>) -> QueueDecl<P> {
        let told = QueueDecl {
            name: decl.name,
            cap: decl.cap,
            cap_key: decl.cap_key,
            policy: format!("{:?}", decl.policy),
            producers: decl.producers,
            consumers: decl.consumers,
            when_full: decl.when_full,
        };
        declare(&mut self.queues, told, |d| d.name);
        decl
    }

    /// # Panics
    /// Also if another lock has the same rank: two such locks would have no order.
    pub fn lock(&mut self, decl: LockDecl) -> LockDecl {
        if let Some(twin) = self
            .locks
            .iter()
            .find(|l| l.rank == decl.rank && l.name != decl.name)
        {
            panic!(
                "locks `{}` and `{}` share rank {}",
                twin.name, decl.name, decl.rank
            );
        }
        declare(&mut self.locks, decl, |d| d.name);
        decl
    }

    pub fn timeout(&mut self, decl: TimeoutDecl) -> TimeoutDecl {
        declare(&mut self.timeouts, decl, |d| d.name);
        decl
    }

    /// The service's page of generated docs.
    pub fn markdown(&self, metrics: &[MetricDecl], keys: &[KeyDecl]) -> String {
        let mut page = String::from("<!-- Generated from the code; do not edit. -->\n");
        let _ = writeln!(page, "\n# {}: what it is made of", self.service);

        let mut tasks = self.tasks.clone();
        tasks.sort_by_key(|t| t.name);
        let rows = tasks.iter().map(|t| {
            vec![
                code(t.name),
                code(t.kind),
                t.count.into(),
                t.does.into(),
                t.on_failure.into(),
            ]
        });
        table(
            &mut page,
            "Tasks",
            &["Task", "Kind", "How many", "Does", "If it fails"],
            rows,
        );

        let mut queues = self.queues.clone();
        queues.sort_by_key(|q| q.name);
        let rows = queues.iter().map(|q| {
            let cap = match q.cap_key {
                Some(key) => format!("{} ({})", q.cap, code(key)),
                None => q.cap.to_string(),
            };
            let flow = format!("{} → {}", q.producers, q.consumers);
            vec![code(q.name), cap, flow, code(&q.policy), q.when_full.into()]
        });
        let head = ["Queue", "Capacity", "From → to", "Policy", "When full"];
        table(&mut page, "Queues", &head, rows);

        let mut locks = self.locks.clone();
        locks.sort_by_key(|l| l.rank);
        let rows = locks
            .iter()
            .map(|l| vec![l.rank.to_string(), code(l.name), l.guards.into()]);
        table(
            &mut page,
            "Locks, in the order they may be taken",
            &["Rank", "Lock", "Guards"],
            rows,
        );

        let mut timeouts = self.timeouts.clone();
        timeouts.sort_by_key(|t| t.name);
        let rows = timeouts.iter().map(|t| {
            let after = format!("{} ms", t.after.as_millis());
            vec![
                code(t.name),
                after,
                t.key.map_or(String::new(), code),
                t.on_expiry.into(),
            ]
        });
        table(
            &mut page,
            "Timeouts",
            &["Timeout", "After", "Key", "On expiry"],
            rows,
        );

        let mut metrics = metrics.to_vec();
        metrics.sort_by(|a, b| a.name.cmp(&b.name));
        let rows = metrics.iter().map(|m| {
            vec![
                code(&m.name),
                m.kind.into(),
                m.labels.join(", "),
                m.help.into(),
            ]
        });
        table(
            &mut page,
            "Metrics",
            &["Metric", "Kind", "Labels", "Meaning"],
            rows,
        );

        let rows = keys.iter().map(key_row);
        let head = [
            "Key", "Type", "Unit", "Default", "Allowed", "Reload", "Meaning",
        ];
        table(&mut page, "Configuration keys", &head, rows);
        page
    }
}

fn key_row(key: &KeyDecl) -> Vec<String> {
    let some = |text: &str| {
        if text.is_empty() {
            String::new()
        } else {
            code(text)
        }
    };
    let reload = match key.apply {
        Apply::Live => "live",
        Apply::Restart => "restart",
    };
    vec![
        code(&key.name),
        key.kind.clone(),
        key.unit.into(),
        some(&key.default),
        some(&key.allowed),
        reload.into(),
        key.doc.clone(),
    ]
}

fn declare<T: PartialEq + Debug>(all: &mut Vec<T>, new: T, name: fn(&T) -> &'static str) {
    match all.iter().find(|old| name(old) == name(&new)) {
        None => all.push(new),
        Some(old) => assert_eq!(
            *old,
            new,
            "`{}` is declared twice and differently",
            name(&new)
        ),
    }
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

fn table(page: &mut String, title: &str, head: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    let _ = writeln!(page, "\n## {title}\n");
    let mut rows = rows.peekable();
    if rows.peek().is_none() {
        page.push_str("None.\n");
        return;
    }
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    page.push_str(&line(head.iter().map(ToString::to_string).collect()));
    page.push_str(&line(head.iter().map(|_| "---".to_owned()).collect()));
    for row in rows {
        page.push_str(&line(
            row.iter().map(|cell| cell.replace('|', "\\|")).collect(),
        ));
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;
    use crate::{config::Settings, lock::RankedMutex, telemetry::Telemetry};

    crate::settings! {
        struct Config {
            /// What happens | under pressure.
            mode: String = "a".to_owned();
            /// How long a drain may take.
            drain_deadline_ms: u64 = 3_000 => 1..=60_000, restart;
        }
    }

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct RejectNew;

    fn work() -> QueueDecl<RejectNew> {
        QueueDecl {
            name: "work",
            cap: 512,
            cap_key: Some("work_cap"),
            policy: RejectNew,
            producers: "listener",
            consumers: "workers",
            when_full: "429",
        }
    }

    const META: LockDecl = LockDecl {
        name: "state_meta",
        rank: 1,
        guards: "flags",
    };
    const ROUTES: LockDecl = LockDecl {
        name: "routing_table",
        rank: 2,
        guards: "routes",
    };
    const WORKER: TaskDecl = TaskDecl {
        name: "worker",
        kind: "worker",
        count: "8",
        does: "fills",
        on_failure: "restarted",
    };
    const DRAIN: TimeoutDecl = TimeoutDecl {
        name: "drain",
        after: Duration::from_secs(3),
        key: Some("drain_deadline_ms"),
        on_expiry: "aborted",
    };

    #[test]
    fn the_page_lists_every_declaration_in_a_stable_order() {
        let telemetry = Telemetry::new("edge", "");
        let build = |reversed: bool| {
            let mut topology = Topology::new("svc-edge");
            let mut locks = [META, ROUTES];
            if reversed {
                locks.reverse();
            }
            for lock in locks {
                topology.lock(lock);
            }
            topology.task(WORKER);
            topology.queue(work());
            topology.timeout(DRAIN);
            topology.markdown(&telemetry.declared(), &Config::keys())
        };
        let page = build(false);
        assert_eq!(page, build(true));
        assert!(page.starts_with("<!-- Generated from the code; do not edit. -->\n"));
        for line in [
            "| `worker` | `worker` | 8 | fills | restarted |",
            "| `work` | 512 (`work_cap`) | listener → workers | `RejectNew` | 429 |",
            "| 1 | `state_meta` | flags |\n| 2 | `routing_table` | routes |",
            "| `drain` | 3000 ms | `drain_deadline_ms` | aborted |",
            "| `queue_depth` | gauge | queue | Items waiting in a queue |",
            "| `busy_rejections_total` | counter | endpoint, queue |",
            "| `drain_deadline_ms` | integer | milliseconds | `3000` | `1..=60000` | restart | How long a drain may take. |",
            "| `mode` | text |  | `\"a\"` |  | live | What happens \\| under pressure. |",
        ] {
            assert!(page.contains(line), "missing {line} in\n{page}");
        }
    }

    #[test]
    fn an_empty_table_says_so() {
        let page = Topology::new("x").markdown(&[], &[]);
        assert_eq!(page.matches("None.\n").count(), 6);
    }

    #[test]
    fn parts_are_built_from_what_was_declared() {
        let mut topology = Topology::new("x");
        let lock = RankedMutex::new(topology.lock(META), ());
        assert_eq!(lock.decl(), META);
        assert_eq!(topology.queue(work()), work());
    }

    #[test]
    fn contradicting_declarations_are_refused() {
        let mut same = Topology::new("x");
        same.lock(META);
        same.lock(META);
        assert_eq!(same.locks.len(), 1);
        let renamed = LockDecl {
            name: "other",
            ..META
        };
        let moved = LockDecl { rank: 9, ..META };
        for second in [renamed, moved] {
            let refused = catch_unwind(|| {
                let mut topology = Topology::new("x");
                topology.lock(META);
                topology.lock(second);
            });
            assert!(refused.is_err(), "{second:?}");
        }
    }
}
