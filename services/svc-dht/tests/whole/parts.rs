//! What the service declares of itself: names, capacities, timeouts, locks, metrics; and that it is so.

use std::{
    collections::BTreeSet,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

use ron_core::{
    lock::{LockDecl, RankedMutex},
    view::{QueueView, TaskView},
};
use svc_dht::{
    config::Config,
    explained,
    id::Id,
    link::hub,
    metrics, node, record_keeper, routes,
    routing::table,
    topology::{self, declare},
};

use crate::{clockwork::in_world, node::Node};

const GENERATED: &str = include_str!("../../../../docs/_generated/svc-dht.md");
const DOCUMENT: &str = include_str!("../../../../docs/svc-dht.md");

// proves: DHT-16.1, DHT-16.2
#[test]
fn the_documentation_lists_the_channels_as_they_are_declared() {
    let (name, page) = topology::page();
    assert_eq!(name, "svc-dht.md");
    assert_eq!(GENERATED, page, "run `cargo xtask docs`");
    for row in [
        "| `work` | 512 (`work_cap`) |",
        "| `route` | 1024 (`route_cap`) |",
        "| `records` | 512 (`records_cap`) |",
        "| `events` | 1024 (`bus_cap`) |",
    ] {
        assert!(page.contains(row), "{row}");
    }
    assert!(page.contains("`WaitFor(100ms)`"));
    assert!(DOCUMENT.contains("(_generated/svc-dht.md)"), "and is found");
}

/// Where the service's own code makes a channel, and what it is told as.
const MADE: [(&str, &str, &str); 6] = [
    ("link/line.rs", "Queue::new(decl.name", "connection"),
    ("service.rs", "Queue::new(parts.work.", "work"),
    ("service.rs", "Queue::new(parts.records.", "records"),
    ("routes.rs", "Queue::new(decl.name", "route"),
    ("routes.rs", "Queue::new(starts.name", "bucket_starts"),
    ("service.rs", "Events::new(", "events"),
];

// proves: DHT-16.3, DHT-1.3
#[test]
fn the_document_has_as_many_channels_as_the_code_makes() {
    let sources = sources();
    let mut found = 0;
    for (file, text) in &sources {
        let code = text.split("#[cfg(test)]").next().unwrap();
        for line in code.lines().filter(|l| !l.trim_start().starts_with("//")) {
            let made = [
                "Queue::new(",
                "Events::new(",
                "mpsc::channel(",
                "watch::channel(",
                "unbounded",
            ];
            if made.iter().any(|make| line.contains(make)) && !line.contains("fn ") {
                let listed = MADE
                    .iter()
                    .any(|(of, how, _)| file.ends_with(of) && line.contains(how));
                assert!(listed, "{file}: {line}");
                found += usize::from(listed);
            }
        }
    }
    assert_eq!(found, MADE.len());
    let rows = GENERATED
        .split("## Queues")
        .nth(1)
        .unwrap()
        .split("## ")
        .next()
        .unwrap();
    let rows: BTreeSet<&str> = rows
        .lines()
        .filter_map(|l| l.strip_prefix("| `")?.split('`').next())
        .collect();
    for (_, _, name) in MADE {
        assert!(rows.contains(name), "{name}");
    }
}

fn sources() -> Vec<(String, String)> {
    fn read(dir: &Path, all: &mut Vec<(String, String)>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                read(&path, all);
            } else if path.extension().is_some_and(|e| e == "rs") && !path.ends_with("tests.rs") {
                all.push((
                    path.display().to_string(),
                    fs::read_to_string(&path).unwrap(),
                ));
            }
        }
    }
    let mut all = Vec::new();
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut all);
    all
}

#[test]
fn the_queues_and_tasks_that_are_built_are_those_that_are_declared() {
    in_world(|world| async move {
        let nodes = Node::network(&world, 3).await;
        let stats = |q: &std::sync::Arc<dyn QueueView>| (q.stats().name, q.stats().cap);
        let mut built: Vec<_> = nodes[1].queues.iter().map(stats).collect();
        built.sort_unstable();
        assert_eq!(built, [("records", 512), ("route", 1024), ("work", 512)]);
        let page = declare(&Config::default()).0.markdown(&[], &[]);
        // All that were ever started: a quiet bucket's writer ends soon, and so does the bootstrapper.
        let kinds: Vec<_> = nodes[1].view.tasks().into_keys().collect();
        for kind in &kinds {
            assert!(page.contains(&format!("| `{kind}` | `{kind}` |")), "{kind}");
        }
        let wanted = [
            "bootstrapper",
            "bucket_writer",
            "http",
            "listener",
            "record_keeper",
            "refresher",
            "republisher",
            "worker",
        ];
        assert_eq!(kinds, wanted);
    });
}

/// In the order in which they may be taken.
const ALL: [LockDecl; 9] = [
    metrics::META_LOCK,
    routes::ROUTES_LOCK,
    table::ROUTING_LOCK,
    record_keeper::KEEPER_LOCK,
    node::PEER_STATS_LOCK,
    explained::EXPLAINED_LOCK,
    hub::POOL_LOCK,
    hub::BREAKERS_LOCK,
    metrics::COUNTERS_LOCK,
];

// proves: DHT-4.5, DHT-4.6, DHT-4.7, DHT-4.8
#[test]
fn state_meta_routing_snapshot_and_counters_are_taken_in_this_order_only() {
    assert_eq!(ALL[0].name, "state_meta");
    assert_eq!(ALL[2].name, "routing_snapshot");
    assert_eq!(ALL[8].name, "counters");
    let locks: Vec<RankedMutex<()>> = ALL.iter().map(|lock| RankedMutex::new(*lock, ())).collect();
    for (outer, a) in locks.iter().enumerate() {
        for (inner, b) in locks.iter().enumerate() {
            let nested = catch_unwind(AssertUnwindSafe(|| {
                let _a = a.lock();
                let _b = b.lock();
            }));
            assert_eq!(
                nested.is_ok(),
                outer < inner,
                "{} then {}",
                ALL[outer].name,
                ALL[inner].name
            );
        }
    }
    for lock in ALL {
        assert!(
            GENERATED.contains(&format!("| {} | `{}` |", lock.rank, lock.name)),
            "{}",
            lock.name
        );
    }
}

// Each spawned task of this world is looked at after each of its polls, and so is each offloaded job.
// proves: DHT-1.1, DHT-4.1, DHT-4.4
#[test]
fn no_task_waits_with_a_lock_in_hand_whatever_it_waits_for() {
    in_world(|world| async move {
        let nodes = Node::network(&world, 6).await;
        nodes[5].machine.kill();
        world.silence(nodes[5].machine.ip(), true);
        nodes[2].machine.stall_disk(true);
        let mut asks = Vec::new();
        for (n, node) in nodes[..5].iter().enumerate() {
            for m in 0..8_u8 {
                let (dht, deadline) = (node.dht.clone(), node.deadline());
                asks.push(tokio::spawn(async move {
                    let name = [n as u8, m];
                    let _ = dht.put_value(&name, b"1", None, deadline).await;
                    let _ = dht.provide(Id([m; 32]), None, deadline).await;
                    let _ = dht.get_value(Id([m; 32]), deadline).await;
                }));
            }
            assert_eq!(node.get("/metrics").await.status, 200);
        }
        world.pass(500).await;
        nodes[2].machine.stall_disk(false);
        for ask in asks {
            ask.await.unwrap();
        }
        world.pass(600_000).await;
    });
}

// proves: DHT-1.7, DHT-7.4
#[test]
fn files_are_reached_on_the_disk_pool_and_signatures_are_made_and_checked_on_the_cpu_pool() {
    in_world(|world| async move {
        let nodes = Node::network(&world, 3).await;
        let before: Vec<_> = nodes
            .iter()
            .map(|n| (n.machine.jobs("disk"), n.machine.jobs("cpu")))
            .collect();
        let put = nodes[0]
            .dht
            .put_value(b"a", b"1", None, nodes[0].deadline())
            .await
            .unwrap();
        for (node, (disk, cpu)) in nodes.iter().zip(before) {
            assert!(node.machine.jobs("disk") > disk, "the journal");
            assert!(
                node.machine.jobs("cpu") > cpu,
                "to sign, or to verify what was stored"
            );
        }
        let cpu = nodes[1].machine.jobs("cpu");
        nodes[1]
            .dht
            .get_value(put.key, nodes[1].deadline())
            .await
            .unwrap();
        assert!(nodes[1].machine.jobs("cpu") > cpu, "what was found");
    });
}

// proves: DHT-2.7, DHT-9.1, DHT-9.2, DHT-9.3, DHT-9.4, DHT-9.5, DHT-9.6, DHT-9.7, DHT-3.7
#[test]
fn metrics_have_the_names_that_operators_know() {
    in_world(|world| async move {
        let nodes = Node::network(&world, 2).await;
        let text = String::from_utf8(nodes[1].get("/metrics").await.body).unwrap();
        for start in [
            "queue_depth{queue=\"work\"} ",
            "queue_depth{queue=\"route\"} ",
            "queue_dropped_total{queue=\"route\"} ",
            "tasks_spawned_total{kind=\"worker\"} 2",
            "tasks_aborted_total{kind=\"worker\"} 0",
            "tasks_canceled_total{kind=\"worker\"} 0",
            "io_timeouts_total{op=\"read\"} ",
            "io_timeouts_total{op=\"write\"} ",
            "io_timeouts_total{op=\"connect\"} ",
            "io_timeouts_total{op=\"find_node\"} ",
            "io_timeouts_total{op=\"find_value\"} ",
            "backoff_retries_total{op=\"find_node\"} ",
            "busy_rejections_total{endpoint=\"store\"",
            "busy_rejections_total{endpoint=\"\",queue=\"work\"} ",
            "hedge_spawned_total ",
            "hedge_canceled_total ",
            "route_dropped_total ",
            "quota_reject_total{kind=\"requests\"} ",
            "bus_lagged_total{bus=\"events\"} ",
            "not_ready_total{phase=\"draining\"} ",
            "routing_peers 1",
        ] {
            assert!(
                text.lines().any(|l| l.starts_with(start)),
                "{start}\n{text}"
            );
        }
    });
}
