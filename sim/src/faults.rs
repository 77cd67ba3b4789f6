//! Carries out a plan: each fault strikes at its time and, if it has a duration, ends after it.

use std::time::Duration;

use crate::{
    chaos::Outage,
    disk::{Death, DiskFaults, SimDisk},
    net::{Link, NodeId},
    plan::{Fault, Planned},
    seed, timer,
    trace::What,
    world::World,
};

/// Prepares what strikes a node in its first start.
pub fn before_start(world: &World, plan: &[Planned]) {
    for planned in plan {
        let Fault::KillAtStart { nth, down_ms } = planned.fault else {
            continue;
        };
        let node = world.find(&planned.on).expect("validated");
        let text = planned.fault.to_string();
        world.recorder().record(Some(node), What::Fault { text });
        change_faults(&world.node_parts(node).disk, |faults| {
            faults.kill_at_start = Some(nth);
        });
        let world = world.clone();
        crate::executor::spawn(async move { start_after_death(&world, node, down_ms).await });
    }
}

/// Strikes every fault of the plan at its time, counted from now. Returns when the last one struck;
/// those that last end by themselves.
pub async fn carry_out(world: World, plan: Vec<Planned>) {
    let begin = timer::now();
    for planned in plan {
        if matches!(planned.fault, Fault::KillAtStart { .. }) {
            continue;
        }
        timer::sleep_until(begin + planned.at()).await;
        let node = world.find(&planned.on).expect("validated");
        let text = planned.fault.to_string();
        world.recorder().record(Some(node), What::Fault { text });
        crate::executor::spawn(strike(world.clone(), node, planned.fault));
    }
}

/// Everything that can heal does; nodes that are down are started. What cannot be undone (bytes lost,
/// items refused) stays.
pub fn heal_all(world: &World) {
    world.net().heal();
    for node in world.node_ids() {
        let parts = world.node_parts(node);
        parts.chaos.heal();
        parts.disk.set_faults(untroubled());
        parts.clock.set_drift(0);
        parts.clock.heal_wall();
        world.resume(node);
        match world.is_stopping(node) {
            // It is down a little later.
            true => drop(crate::executor::spawn(start_once_stopped(
                world.clone(),
                node,
            ))),
            false => world.start(node),
        }
    }
    world.recorder().record(
        None,
        What::Phase {
            text: "all faults healed".to_owned(),
        },
    );
}

async fn strike(world: World, node: NodeId, fault: Fault) {
    let parts = world.node_parts(node);
    let text = fault.to_string();
    let kind = fault.kind();
    if kind.starts_with("node.") && world.status(node) == crate::world::Status::Up {
        parts.felt.note(kind);
    }
    match fault {
        Fault::Kill { down_ms } => {
            world.die(node, Death::Process, "killed");
            start_after(&world, node, down_ms).await;
        }
        Fault::PowerOff { down_ms } => {
            world.die(node, Death::Power, "power lost");
            start_after(&world, node, down_ms).await;
        }
        Fault::Shutdown {
            again_ms,
            restart_after_ms,
        } => {
            world.ask_shutdown(node);
            if let Some(ms) = again_ms {
                timer::sleep(Duration::from_millis(ms)).await;
                world.ask_shutdown(node);
            }
            start_after(&world, node, restart_after_ms).await;
        }
        Fault::Restart => world.restart(node),
        Fault::Pause { for_ms } => {
            world.pause(node);
            lasting(&world, node, for_ms, &text).await;
            world.resume(node);
        }
        Fault::Partition { for_ms, one_way } => {
            each_peer(&world, node, |world, peer| {
                world.net().set_link(peer, node, |link| link.blocked = true);
                if !one_way {
                    world.net().set_link(node, peer, |link| link.blocked = true);
                }
            });
            lasting(&world, node, for_ms, &text).await;
            both_ways(&world, node, |link| link.blocked = false);
        }
        Fault::Loss { for_ms, per_10_000 } => {
            both_ways(&world, node, |link| link.loss_per_10_000 = per_10_000);
            lasting(&world, node, for_ms, &text).await;
            both_ways(&world, node, |link| link.loss_per_10_000 = 0);
        }
        Fault::Latency { for_ms, factor } => {
            both_ways(&world, node, |link| link.latency_factor = factor);
            lasting(&world, node, for_ms, &text).await;
            both_ways(&world, node, |link| link.latency_factor = 1);
        }
        Fault::SlowLink {
            for_ms,
            bytes_per_s,
        } => {
            both_ways(&world, node, |link| link.bytes_per_s = bytes_per_s);
            lasting(&world, node, for_ms, &text).await;
            both_ways(&world, node, |link| link.bytes_per_s = 0);
        }
        Fault::ConnectHang { for_ms } => {
            both_ways(&world, node, |link| link.connects_hang = true);
            lasting(&world, node, for_ms, &text).await;
            both_ways(&world, node, |link| link.connects_hang = false);
        }
        Fault::Duplicate { for_ms, per_10_000 } => {
            both_ways(&world, node, |link| link.duplicate_per_10_000 = per_10_000);
            lasting(&world, node, for_ms, &text).await;
            both_ways(&world, node, |link| link.duplicate_per_10_000 = 0);
        }
        Fault::Reorder {
            for_ms,
            per_10_000,
            by_ms,
        } => {
            both_ways(&world, node, |link| {
                link.reorder_per_10_000 = per_10_000;
                link.reorder_by = Duration::from_millis(by_ms);
            });
            lasting(&world, node, for_ms, &text).await;
            both_ways(&world, node, |link| link.reorder_per_10_000 = 0);
        }
        Fault::ResetConnections => {
            if world.net().reset_connections(node) > 0 {
                parts.felt.note("net.reset");
            }
        }
        Fault::HalfOpen => {
            if world.net().silence_connections(node) > 0 {
                parts.felt.note("net.half_open");
            }
        }
        Fault::DiskStall { for_ms } => parts.chaos.stall_disk(Duration::from_millis(for_ms)),
        Fault::DiskErrors { for_ms, per_10_000 } => {
            change_faults(&parts.disk, |faults| {
                faults.eio_read_per_10k = per_10_000;
                faults.eio_write_per_10k = per_10_000;
            });
            lasting(&world, node, for_ms, &text).await;
            change_faults(&parts.disk, |faults| {
                faults.eio_read_per_10k = 0;
                faults.eio_write_per_10k = 0;
            });
        }
        Fault::SyncFails { for_ms, per_10_000 } => {
            change_faults(&parts.disk, |faults| faults.eio_sync_per_10k = per_10_000);
            lasting(&world, node, for_ms, &text).await;
            change_faults(&parts.disk, |faults| faults.eio_sync_per_10k = 0);
        }
        Fault::SyncLies { for_ms } => {
            change_faults(&parts.disk, |faults| faults.lying_sync_per_10k = 10_000);
            lasting(&world, node, for_ms, &text).await;
            change_faults(&parts.disk, |faults| faults.lying_sync_per_10k = 0);
        }
        Fault::DiskFull { for_ms, free_bytes } => {
            let limit = parts.disk.bytes_used() + free_bytes;
            change_faults(&parts.disk, |faults| faults.capacity_bytes = Some(limit));
            lasting(&world, node, for_ms, &text).await;
            change_faults(&parts.disk, |faults| faults.capacity_bytes = None);
        }
        Fault::CrashAtDiskOp { nth, down_ms } => {
            let at = parts.disk.incarnation_ops() + nth;
            change_faults(&parts.disk, |faults| faults.crash_at_op = Some(at));
            start_after_death(&world, node, down_ms).await;
        }
        Fault::KillAtDiskOp { nth, down_ms } => {
            let at = parts.disk.incarnation_ops() + nth;
            change_faults(&parts.disk, |faults| faults.kill_at_op = Some(at));
            start_after_death(&world, node, down_ms).await;
        }
        Fault::KillAtStart { .. } => {}
        Fault::SyncKills { down_ms } => {
            change_faults(&parts.disk, |faults| faults.sync_kills = true);
            start_after_death(&world, node, down_ms).await;
        }
        Fault::BitRot { path } => {
            if let Some(rot) = parts.disk.corrupt_random(&path) {
                parts.felt.note("disk.bit_rot");
                world.recorder().record(
                    Some(node),
                    What::Fault {
                        text: format!("bit {} of byte {} in {}", rot.bit, rot.offset, rot.path),
                    },
                );
            }
        }
        Fault::Restore { path, after_ms } => {
            let copy = parts.disk.copy_of(&path);
            timer::sleep(Duration::from_millis(after_ms)).await;
            world.die(node, Death::Process, "killed to restore a backup");
            if parts.disk.put_back(&path, &copy) {
                parts.felt.note("disk.restore");
                let text = format!("{path} is what it was {after_ms} ms ago");
                world.recorder().record(Some(node), What::Fault { text });
            }
            start_after(&world, node, 10).await;
        }
        Fault::BackendAway { for_ms } => {
            parts
                .chaos
                .fail_backend(Outage::Away, Duration::from_millis(for_ms));
            lasting(&world, node, for_ms, &text).await;
        }
        Fault::BackendHangs { for_ms } => {
            parts
                .chaos
                .fail_backend(Outage::Hangs, Duration::from_millis(for_ms));
            lasting(&world, node, for_ms, &text).await;
        }
        Fault::BackendSlow { for_ms, factor } => {
            parts
                .chaos
                .slow_backend(factor, Duration::from_millis(for_ms));
        }
        Fault::ClockJump { by_ms } => parts.clock.jump_wall(by_ms),
        Fault::ClockDrift { ppm } => parts.clock.set_drift(ppm),
        Fault::Panic { task, count } => {
            let mut rng = seed::stream(
                world.seed(),
                &format!("panic {task} {:?}", timer::elapsed()),
            );
            if world.panic_tasks(node, &task, count as usize, &mut rng) > 0 {
                parts.felt.note("task.panic");
            }
        }
        Fault::SlowCpu { for_ms, factor } => {
            parts.chaos.slow_down(factor, Duration::from_millis(for_ms))
        }
    }
}

/// A disk without faults; when the power goes, what was not synced is at risk all the same.
pub fn untroubled() -> DiskFaults {
    DiskFaults {
        lose_unsynced: true,
        torn: true,
        ..DiskFaults::default()
    }
}

fn change_faults(disk: &SimDisk, change: impl FnOnce(&mut DiskFaults)) {
    let mut faults = disk.faults();
    change(&mut faults);
    disk.set_faults(faults);
}

/// How long a node may take to come to the operation in which it is to die.
const DIES_WITHIN: Duration = Duration::from_secs(5);

/// Waits until the node has died of what was prepared, and starts it again.
async fn start_after_death(world: &World, node: NodeId, ms: u64) {
    let begin = timer::now();
    while world.status(node) == crate::world::Status::Up && timer::now() - begin < DIES_WITHIN {
        timer::sleep(Duration::from_millis(5)).await;
    }
    start_after(world, node, ms).await;
}

/// Starts the node again after a while, or once it has stopped if it is about to.
async fn start_after(world: &World, node: NodeId, ms: u64) {
    timer::sleep(Duration::from_millis(ms)).await;
    start_once_stopped(world.clone(), node).await;
}

async fn start_once_stopped(world: World, node: NodeId) {
    while world.status(node) == crate::world::Status::Up && world.is_stopping(node) {
        timer::sleep(Duration::from_millis(10)).await;
    }
    world.start(node);
}

async fn lasting(world: &World, node: NodeId, ms: u64, text: &str) {
    timer::sleep(Duration::from_millis(ms)).await;
    world.recorder().record(
        Some(node),
        What::Healed {
            text: text.to_owned(),
        },
    );
}

fn each_peer(world: &World, node: NodeId, mut act: impl FnMut(&World, NodeId)) {
    for peer in world.node_ids().into_iter().filter(|peer| *peer != node) {
        act(world, peer);
    }
}

fn both_ways(world: &World, node: NodeId, change: impl Fn(&mut Link)) {
    each_peer(world, node, |world, peer| {
        world.net().set_link(node, peer, &change);
        world.net().set_link(peer, node, &change);
    });
}
