//! A service in a small world: what `App` does around it, from a refused start to the end of its drain.

use std::{
    net::SocketAddr,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use super::*;
use crate::{
    auth::{AuthConfig, AuthMode},
    config::{ConfigErrors, Sources},
    seam::{BoxFuture, Conn},
    test_env::World,
};

crate::settings! {
    struct Config {
        /// May change while it runs.
        low: u32 = 1 => 0..=100;
        /// Operators act over HTTP.
        admin: bool = false, restart;
        /// May not.
        high: u32 = 10 => 0..=100, restart;
        auth: AuthConfig;
        tls: TlsConfig;
        reload: ReloadConfig;
    }
}

impl AppSettings for Config {
    fn rules(&self) -> Vec<Broken> {
        Vec::new()
    }

    fn data_dir(&self) -> Option<&str> {
        None
    }

    fn binds(&self) -> Vec<SocketAddr> {
        Vec::new()
    }

    crate::app_sections!(admin);
}

#[test]
fn settings_that_do_not_say_who_may_call_are_an_error_and_never_an_open_door() {
    let world = World::new();
    for (mode, key) in [
        (AuthMode::Ingress, "auth.ingress.trusted_peers"),
        (AuthMode::Passport, "auth.passport.audience"),
    ] {
        let mut config = Config::default();
        config.auth.mode = mode;
        let refused = App::open(Start::new(world.env(), Bus::new(), Arc::new(config)));
        let told = refused.unwrap_err().to_string();
        assert!(told.contains(key), "{told}");
    }
    let open = App::open(Start::new(
        world.env(),
        Bus::new(),
        Arc::new(Config::default()),
    ));
    assert!(
        open.is_ok(),
        "nobody is asked for a name only where that was said"
    );
}

#[test]
fn a_drain_counts_what_is_finished_after_it_began() {
    let drain = Drain::default();
    drain.finish_one();
    assert_eq!((drain.is_begun(), drain.drained()), (false, 0));
    drain.begin();
    assert_eq!((drain.is_begun(), drain.drained()), (true, 0));
    drain.finish_one();
    drain.finish_one();
    assert_eq!(drain.drained(), 2);
}

/// A configuration file, and what is prepared and put in force with it.
struct File {
    text: Mutex<String>,
    certificate: Mutex<Result<u64, &'static str>>,
    in_force: AtomicU64,
}

fn live(file: &Arc<File>, bus: &Bus) -> Arc<Live<Config>> {
    let read = file.clone();
    let live = Live::<Config>::load("X_", bus, move || {
        let text = read.text.lock().unwrap().clone();
        Ok(Sources {
            file: Some(("x.toml".to_owned(), text)),
            ..Sources::default()
        })
    });
    let file = file.clone();
    Arc::new(live.unwrap().preparing(move |_| {
        let found = *file.certificate.lock().unwrap();
        let found = found.map_err(|why| ConfigErrors::of_file("c.pem", "tls.cert", why))?;
        let file = file.clone();
        Ok(Box::new(move || file.in_force.store(found, Relaxed)))
    }))
}

#[test]
fn a_reload_is_whole_and_told_or_changes_nothing() {
    let bus = Bus::new();
    let mut events = bus.subscribe();
    let file = Arc::new(File {
        text: Mutex::new(String::new()),
        certificate: Mutex::new(Ok(1)),
        in_force: AtomicU64::new(0),
    });
    let live = live(&file, &bus);
    let mut low = 1;
    for (text, certificate, told) in [
        ("low = 2", Ok(2), Ok((&["low"][..], &[][..]))),
        (
            "low = 3",
            Err("no certificate"),
            Err("c.pem: `tls.cert`: no certificate"),
        ),
        ("low = 999", Ok(3), Err("x.toml:1: `low` = 999")),
        (
            "low = 4\nhigh = 5",
            Ok(4),
            Ok((&["low"][..], &["high"][..])),
        ),
    ] {
        *file.text.lock().unwrap() = text.to_owned();
        *file.certificate.lock().unwrap() = certificate;
        match (live.reload(), told) {
            (Ok(report), Ok((applied, needs_restart))) => {
                assert_eq!(
                    (&report.applied[..], &report.needs_restart[..]),
                    (
                        &applied.iter().map(ToString::to_string).collect::<Vec<_>>()[..],
                        &needs_restart
                            .iter()
                            .map(ToString::to_string)
                            .collect::<Vec<_>>()[..],
                    )
                );
                low = live.current().low;
                assert_eq!(u64::from(low), file.in_force.load(Relaxed), "{text}");
            }
            (Err(errors), Err(why)) => {
                assert!(errors.to_string().starts_with(why), "{errors}");
                assert_eq!(live.current().low, low, "{text}");
                assert_eq!(u64::from(low), file.in_force.load(Relaxed), "{text}");
            }
            (got, wanted) => panic!("{text}: {got:?}, not {wanted:?}"),
        }
    }
    let world = World::new();
    for version in 1..=2 {
        let told = world.run(events.recv());
        assert_eq!(told, Some(KernelEvent::ConfigUpdated { version }));
    }
}

#[test]
fn a_reloaded_configuration_is_put_in_force_and_the_service_is_told() {
    let world = World::new();
    let env = world.env();
    let bus = Bus::new();
    let file = Arc::new(File {
        text: Mutex::new(String::new()),
        certificate: Mutex::new(Ok(1)),
        in_force: AtomicU64::new(0),
    });
    let live = live(&file, &bus);
    let mut app = App::open(Start::live(env.clone(), bus, &live)).unwrap();
    let phase = app.supervisor.phase("all", Duration::from_secs(1), || {});
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = told.clone();
    app.watch_config(phase, move |config, version| {
        tell.lock().unwrap().push((config.low, version));
        std::future::ready(())
    });
    let (config, stop) = (app.config.clone(), Shutdown::new());
    app.begin(stop.clone(), |_| {});
    let running = app.run();
    world.run(async {
        let asked = async {
            env.sleep(Duration::from_millis(10)).await;
            assert_eq!(config.load().low, 1);
            *file.text.lock().unwrap() = "low = 7".to_owned();
            live.reload().unwrap();
            env.sleep(Duration::from_millis(10)).await;
            assert_eq!(config.load().low, 7);
            stop.trigger();
        };
        let (ended, ()) = futures_util::future::join(running, asked).await;
        assert_eq!((ended.report.aborted, ended.drained), (0, 0));
    });
    assert_eq!(*told.lock().unwrap(), [(1, None), (7, Some(1))]);
}

#[test]
fn a_worker_finishes_what_it_took_and_what_is_queued_with_no_more_than_its_hands_hold() {
    let world = World::new();
    let env = world.env();
    let queue = crate::Queue::new("jobs", 16, crate::RejectNew);
    let (now, most, done) = (Arc::default(), Arc::default(), Arc::default());
    let counts: [Arc<AtomicU64>; 3] = [now, most, done];
    world.run(async {
        for job in 0..10_u64 {
            queue.push(job).unwrap();
        }
        let serve = |job: u64| {
            let (env, [now, most, done]) = (env.clone(), counts.clone());
            async move {
                let held = 1 + now.fetch_add(1, Relaxed);
                most.fetch_max(held, Relaxed);
                // Some end at once, others wait.
                env.sleep(Duration::from_millis(job % 3)).await;
                now.fetch_sub(1, Relaxed);
                done.fetch_add(1, Relaxed);
            }
        };
        let close = async {
            env.sleep(Duration::from_millis(1)).await;
            queue.close();
        };
        futures_util::future::join(work(&queue, 4, serve), close).await;
    });
    assert_eq!(counts.map(|count| count.load(Relaxed)), [0, 4, 10]);
}

struct Deaf;

impl Listener for Deaf {
    fn accept(&self) -> BoxFuture<'_, std::io::Result<(Conn, SocketAddr)>> {
        Box::pin(std::future::pending())
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        Ok(([127, 0, 0, 1], 80).into())
    }
}

#[test]
fn a_listener_is_taken_once_and_one_that_cannot_be_bound_again_is_given_up() {
    let world = World::new();
    let env = world.env();
    let bound = Bound::new(Box::new(Deaf));
    assert!(world.run(bound.take(&env)).is_some());
    // This world has no network.
    assert!(world.run(bound.take(&env)).is_none());
}
