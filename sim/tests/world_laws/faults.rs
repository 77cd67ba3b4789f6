//! Every fault of a plan does what its line says while it lasts, and is gone when it is over.

use std::{io::ErrorKind, sync::Arc, time::Duration};

use ron_core::seam::{Open, Pool};
use sim::{
    faults::{carry_out, heal_all},
    plan::{Fault, Planned},
    timer,
    world::Status,
};
use tokio::io::AsyncReadExt;

use super::{MS, SECOND, Two, kind, law, read, send, within};

impl Two {
    /// Strikes node `b` now and returns when it has struck.
    async fn strike(&self, fault: Fault) {
        let planned = Planned {
            at_us: 0,
            on: "b".to_owned(),
            fault,
        };
        carry_out(self.world.clone(), vec![planned]).await;
        timer::sleep(Duration::from_micros(1)).await;
    }

    /// How long a byte takes from `a` to `b`; `None` if it does not arrive in an hour's quarter.
    async fn trip(&self) -> Option<Duration> {
        let (mut a, mut b) = within(900 * SECOND, self.connected()).await?;
        send(&mut a, &[1; 1000]).await;
        let got = within(900 * SECOND, read(&mut b, 1000)).await?;
        got.0.is_ok().then_some(got.1)
    }

    /// Writes a file on `b`'s disk and syncs it.
    async fn write(&self) -> std::io::Result<()> {
        let env = self.env(self.b);
        let stored = env.disk(|disk| {
            let file = disk.open("f", Open::Create)?;
            file.write_at(0, b"0123456789")?;
            file.sync()?;
            disk.sync_dir("")
        });
        stored.await.expect("the job is not lost")
    }
}

const WEAKEST: Duration = Duration::from_micros(800);

#[test]
fn a_plan_strikes_at_its_times_in_order() {
    law(|two: Two| async move {
        let at = |ms: u64, fault| Planned {
            at_us: ms * 1000,
            on: "b".to_owned(),
            fault,
        };
        let begin = timer::now();
        let plan = vec![
            at(100, Fault::ClockJump { by_ms: 5 }),
            at(300, Fault::ClockJump { by_ms: 7 }),
        ];
        let clock = two.world.node_parts(two.b).clock;
        let ((), ()) = tokio::join!(biased; carry_out(two.world.clone(), plan), async {
            for (ms, offset) in [(99, 0), (101, 5), (299, 5), (301, 12)] {
                timer::sleep_until(begin + ms * MS).await;
                assert_eq!(clock.wall_offset_ms(), offset, "at {ms} ms");
            }
        });
        assert_eq!(two.world.node_parts(two.a).clock.wall_offset_ms(), 0);
    });
}

#[test]
fn a_node_that_is_killed_is_down_for_its_time() {
    for fault in [
        Fault::Kill { down_ms: 500 },
        Fault::PowerOff { down_ms: 500 },
    ] {
        for early in [true, false] {
            let fault = fault.clone();
            law_with(move |two| {
                let fault = fault.clone();
                Box::pin(async move {
                    two.strike(fault).await;
                    assert_eq!(two.world.status(two.b), Status::Down);
                    timer::sleep(if early { 490 * MS } else { 510 * MS }).await;
                    let expected = if early { Status::Down } else { Status::Up };
                    assert_eq!(two.world.status(two.b), expected);
                })
            });
        }
    }
}

#[test]
fn a_paused_node_does_nothing_and_goes_on_afterwards() {
    law(|two: Two| async move {
        let done = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let (env, count) = (two.env(two.b), done.clone());
        drop(two.env(two.b).spawn("ticker", async move {
            loop {
                env.sleep(10 * MS).await;
                count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        }));
        let ticks = || done.load(std::sync::atomic::Ordering::Relaxed);
        two.strike(Fault::Pause { for_ms: 500 }).await;
        let before = ticks();
        timer::sleep(490 * MS).await;
        assert_eq!(ticks(), before);
        timer::sleep(200 * MS).await;
        assert!(ticks() > before + 10);
    });
}

#[test]
fn a_fault_of_the_network_lasts_its_time_and_no_longer() {
    // How long a trip takes at least and at most while the fault of 10 s lasts.
    type Row = (Fault, Duration, Duration);
    let for_ms = 10_000;
    let table: [Row; 6] = [
        (
            Fault::Partition {
                for_ms,
                one_way: false,
            },
            9 * SECOND,
            40 * SECOND,
        ),
        (
            Fault::Partition {
                for_ms,
                one_way: true,
            },
            9 * SECOND,
            40 * SECOND,
        ),
        (Fault::ConnectHang { for_ms }, 9 * SECOND, 40 * SECOND),
        (
            Fault::Latency {
                for_ms,
                factor: 100,
            },
            15 * MS,
            240 * MS,
        ),
        (
            Fault::SlowLink {
                for_ms,
                bytes_per_s: 1000,
            },
            SECOND,
            2 * SECOND,
        ),
        (
            Fault::Loss {
                for_ms,
                per_10_000: 9000,
            },
            Duration::ZERO,
            900 * SECOND,
        ),
    ];
    for (fault, least, most) in table {
        for healed_early in [false, true] {
            let fault = fault.clone();
            law_with(move |two| {
                let fault = fault.clone();
                Box::pin(async move {
                    let text = fault.to_string();
                    two.strike(fault).await;
                    let begin = timer::now();
                    if healed_early {
                        heal_all(&two.world);
                    } else {
                        assert!(two.trip().await.is_some());
                        let took = timer::now() - begin;
                        assert!((least..=most).contains(&took), "{text}: {took:?}");
                    }
                    // Also after the fault's own end: what was healed early is not undone twice.
                    for wait in [0, 60] {
                        if !healed_early || wait > 0 {
                            timer::sleep(60 * SECOND).await;
                        }
                        for _ in 0..20 {
                            let took = two.trip().await.expect("it arrives");
                            let fair = Duration::from_micros(50)..=WEAKEST;
                            assert!(fair.contains(&took), "{text} is over: {took:?}");
                        }
                    }
                })
            });
        }
    }
}

#[test]
fn where_everything_is_lost_a_byte_still_arrives_very_late() {
    law(|two: Two| async move {
        let (mut a, mut b) = two.connected().await;
        two.strike(Fault::Loss {
            for_ms: 1000,
            per_10_000: 10_000,
        })
        .await;
        send(&mut a, b"x").await;
        let (_, took) = read(&mut b, 1).await;
        assert!((60 * SECOND..180 * SECOND).contains(&took), "{took:?}");
    });
}

#[test]
fn connections_are_reset_by_a_reset() {
    law(|two: Two| async move {
        let (mut a, _b) = two.connected().await;
        two.strike(Fault::ResetConnections).await;
        let read = within(SECOND, a.read_u8()).await.expect("it is told");
        assert_eq!(kind(read), ErrorKind::ConnectionReset);
    });
}

#[test]
fn a_fault_of_the_disk_lasts_its_time_and_no_longer() {
    let for_ms = 1000;
    let table: [(Fault, ErrorKind); 3] = [
        (
            Fault::DiskErrors {
                for_ms,
                per_10_000: 10_000,
            },
            ErrorKind::Other,
        ),
        (
            Fault::SyncFails {
                for_ms,
                per_10_000: 10_000,
            },
            ErrorKind::Other,
        ),
        (
            Fault::DiskFull {
                for_ms,
                free_bytes: 5,
            },
            ErrorKind::StorageFull,
        ),
    ];
    for (fault, expected) in table {
        for healed_early in [false, true] {
            let fault = fault.clone();
            law_with(move |two| {
                let fault = fault.clone();
                Box::pin(async move {
                    let text = fault.to_string();
                    two.strike(fault).await;
                    let error = two.write().await.expect_err("the disk fails");
                    if expected == ErrorKind::StorageFull {
                        assert_eq!(error.kind(), expected, "{text}");
                    }
                    if healed_early {
                        heal_all(&two.world);
                    } else {
                        timer::sleep(900 * MS).await;
                        assert!(two.write().await.is_err(), "{text} is not over");
                        timer::sleep(200 * MS).await;
                    }
                    assert!(two.write().await.is_ok(), "{text} is over");
                })
            });
        }
    }
}

#[test]
fn a_sync_that_lies_loses_what_it_promised() {
    law(|two: Two| async move {
        let disk = two.world.node_parts(two.b).disk;
        two.strike(Fault::SyncLies { for_ms: 1000 }).await;
        two.write().await.unwrap();
        assert_ne!(disk.read_durable("f").unwrap_or_default(), b"0123456789");
        timer::sleep(2 * SECOND).await;
        two.write().await.unwrap();
        assert_eq!(disk.read_durable("f").unwrap(), b"0123456789");
    });
}

#[test]
fn a_stalled_disk_answers_when_the_stall_is_over_and_the_longest_stall_counts() {
    law(|two: Two| async move {
        two.strike(Fault::DiskStall { for_ms: 700 }).await;
        two.strike(Fault::DiskStall { for_ms: 100 }).await;
        let begin = timer::now();
        two.write().await.unwrap();
        let took = timer::now() - begin;
        assert!((690 * MS..750 * MS).contains(&took), "{took:?}");
        let begin = timer::now();
        two.write().await.unwrap();
        assert!(timer::now() - begin < 50 * MS);
    });
}

#[test]
fn a_slow_cpu_takes_its_factor_longer_for_its_time() {
    const HASH: Pool = Pool {
        name: "hash",
        threads: 1,
    };
    law(|two: Two| async move {
        let env = two.env(two.b);
        let job = || async {
            let begin = timer::now();
            env.offload(HASH, || ()).await.expect("it runs");
            timer::now() - begin
        };
        let plain = job().await;
        two.strike(Fault::SlowCpu {
            for_ms: 1000,
            factor: 50,
        })
        .await;
        assert!(about(job().await, plain * 50));
        heal_all(&two.world);
        assert!(about(job().await, plain));
        two.strike(Fault::SlowCpu {
            for_ms: 1000,
            factor: 50,
        })
        .await;
        timer::sleep(1001 * MS).await;
        assert!(about(job().await, plain));
    });
}

#[test]
fn a_pool_runs_no_more_jobs_at_once_than_it_has_threads() {
    const TWO: Pool = Pool {
        name: "two",
        threads: 2,
    };
    law(|two: Two| async move {
        let env = two.env(two.b);
        let begin = timer::now();
        let plain = {
            env.offload(TWO, || ()).await.expect("it runs");
            timer::now() - begin
        };
        let begin = timer::now();
        let jobs: Vec<_> = (0..6).map(|_| env.offload(TWO, || ())).collect();
        for job in jobs {
            job.await.expect("it runs");
        }
        assert!(about(timer::now() - begin, plain * 3));
    });
}

#[test]
fn a_node_dies_in_its_nth_disk_operation_and_comes_back() {
    law(|two: Two| async move {
        two.strike(Fault::CrashAtDiskOp {
            nth: 2,
            down_ms: 500,
        })
        .await;
        assert_eq!(two.world.status(two.b), Status::Up);
        assert!(within(100 * MS, two.write()).await.is_none());
        assert_eq!(two.world.status(two.b), Status::Down);
        timer::sleep(500 * MS).await;
        assert_eq!(two.world.status(two.b), Status::Up);
        two.write().await.unwrap();
    });
}

#[test]
fn a_node_lives_by_its_own_clock_and_healing_sets_it_right() {
    law(|two: Two| async move {
        let (b, parts) = (two.env(two.b), two.world.node_parts(two.b));
        two.strike(Fault::ClockDrift { ppm: 100_000 }).await;
        let (world, local) = (timer::now(), b.now());
        b.sleep(11 * SECOND).await;
        let passed = timer::now() - world;
        assert!(
            (10 * SECOND..10 * SECOND + MS).contains(&passed),
            "{passed:?}"
        );
        assert!(b.now() - local >= 11 * SECOND);

        let (wall, local) = (b.wall(), b.now());
        two.strike(Fault::ClockJump { by_ms: -3_600_000 }).await;
        assert!(b.wall() < wall && b.now() >= local);

        let before = b.now();
        heal_all(&two.world);
        assert_eq!(
            (parts.clock.drift_ppm(), parts.clock.wall_offset_ms()),
            (0, 0)
        );
        assert!(b.now() >= before);
    });
}

#[test]
fn healing_starts_every_node_that_is_down_and_resumes_the_paused() {
    law(|two: Two| async move {
        two.world.pause(two.a);
        two.strike(Fault::Kill { down_ms: 3_000_000 }).await;
        heal_all(&two.world);
        assert_eq!(two.world.status(two.b), Status::Up);
        let env = two.env(two.a);
        let task = two
            .env(two.a)
            .spawn("nap", async move { env.sleep(MS).await });
        assert!(within(SECOND, task).await.is_some(), "a runs again");
    });
}

/// The scheduler itself takes some nanoseconds for each step.
fn about(took: Duration, expected: Duration) -> bool {
    took >= expected * 19 / 20 && took <= expected * 21 / 20
}

type Boxed = std::pin::Pin<Box<dyn Future<Output = ()>>>;

/// As [`law`], for a body that carries a row of a table.
fn law_with(body: impl Fn(Two) -> Boxed + Clone + Send + 'static) {
    super::run_law(body);
}
