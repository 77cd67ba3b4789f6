//! A small server asked to stop while connections are idle, busy, or never done; and one whose reader is slow.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use axum::{Router, routing::get};
use ron_core::{
    Env, Shutdown,
    seam::Conn,
    serve::{Phase, ServeOptions, ServeReport},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Bench, Verdict, agree, demand, supervisor_script::Pulse};

const PORT: u16 = 7900;
const AT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), PORT);
/// What may pass besides what is waited for, on a node that nothing holds up.
pub const BESIDES: Duration = Duration::from_millis(100);
/// More than a connection holds on its way.
const LONG: usize = 400 * 1024;

pub async fn drill(bench: &mut Bench) -> Verdict {
    let pulse = Pulse::new();
    let env = bench.env.clone();
    let beating = env.spawn("drill", pulse.clone().beat(env.clone()));
    let verdict = match bench.pick(0, 2) {
        0 => stop_while_busy(bench, &pulse).await,
        1 => stop_of_the_endless(bench, &pulse).await,
        _ => slow_reader(bench, &pulse).await,
    };
    beating.abort();
    verdict
}

/// Idle connections end at once, busy ones right after their answer, and nothing has to be cut.
async fn stop_while_busy(bench: &mut Bench, pulse: &Pulse) -> Verdict {
    let grace = Duration::from_secs(3);
    let server = Server::start(bench, grace, Duration::from_secs(5)).await?;
    let takes = bench.ms(20, 60);
    let (mut idle, mut busy) = (Vec::new(), Vec::new());
    for _ in 0..bench.pick(0, 3) {
        let mut conn = server.open().await?;
        ask(&mut conn, "/").await?;
        idle.push(conn);
    }
    for conn in &mut idle {
        let head = read_answer(conn).await?;
        demand(head.ends_with("ok"), || format!("an answer: came {head:?}"))?;
    }
    for _ in 0..bench.pick(1, 3) {
        let mut conn = server.open().await?;
        ask(&mut conn, &format!("/slow/{}", takes.as_micros())).await?;
        busy.push(conn);
    }
    // They are in hand by now.
    bench.env.sleep(Duration::from_millis(8)).await;
    let asked = bench.env.now();
    server.stop.trigger();
    for mut conn in idle {
        let rest = read_all(&mut conn).await;
        agree("what an idle connection says at the end", rest.len(), 0)?;
    }
    for mut conn in busy {
        let whole = String::from_utf8_lossy(&read_all(&mut conn).await).into_owned();
        demand(whole.contains(" 200 ") && whole.ends_with("done"), || {
            format!("a busy connection at the stop: expected its answer, came {whole:?}")
        })?;
    }
    let (report, ended) = server.ended().await?;
    agree("cut at the stop", report.aborted_at_close, 0)?;
    let (took, most) = (ended - asked, takes + BESIDES + pulse.missed() * 2);
    demand(took <= most, || {
        format!("a stop with requests in hand: expected at most {most:?}, came {took:?}")
    })
}

/// What never ends is cut when the grace is over, and counted.
async fn stop_of_the_endless(bench: &mut Bench, pulse: &Pulse) -> Verdict {
    let grace = bench.ms(20, 60);
    let server = Server::start(bench, grace, Duration::from_secs(5)).await?;
    let mut conn = server.open().await?;
    ask(&mut conn, "/endless").await?;
    bench.env.sleep(Duration::from_millis(8)).await;
    let asked = bench.env.now();
    server.stop.trigger();
    let rest = read_all(&mut conn).await;
    agree("what an endless request is answered", rest.len(), 0)?;
    let (report, ended) = server.ended().await?;
    agree("cut at the stop", report.aborted_at_close, 1)?;
    agree("accepted", report.accepted, 1)?;
    let (took, most) = (ended - asked, grace + BESIDES + pulse.missed() * 2);
    demand((grace..=most).contains(&took), || {
        format!("a stop with an endless request: expected {grace:?} to {most:?}, came {took:?}")
    })
}

/// A reader that takes a little again and again gets it all; one that takes nothing is cut, and counted.
async fn slow_reader(bench: &mut Bench, pulse: &Pulse) -> Verdict {
    let write = Duration::from_millis(60);
    let server = Server::start(bench, Duration::from_millis(50), write).await?;
    let steady = bench.one_in(2);
    let mut conn = server.open().await?;
    ask(&mut conn, "/long").await?;
    let (mut got, mut piece) = (0, vec![0; LONG / 16]);
    bench.env.sleep(Duration::from_millis(8)).await;
    if !steady {
        // Long enough for a connection that was accepted late.
        bench.env.sleep(write * 20).await;
    }
    loop {
        match conn.read(&mut piece).await {
            Ok(0) | Err(_) => break,
            Ok(n) => got += n,
        }
        // Together longer than the limit, each pause shorter.
        bench.env.sleep(Duration::from_millis(15)).await;
        if got >= LONG {
            break;
        }
    }
    drop(conn);
    server.stop.trigger();
    let timeouts = server.options.stats.timeouts(Phase::Write);
    server.ended().await?;
    // Whoever was held up may have been too slow after all.
    if pulse.missed() > Duration::from_millis(5) {
        return Ok(());
    }
    match steady {
        true => {
            demand(got >= LONG, || {
                format!("a slow reader got {got} bytes of {LONG}")
            })?;
            agree("writes that took too long", timeouts, 0)
        }
        // Whoever was accepted late may have had it all after all; who had not was cut, and counted.
        false => agree("writes that took too long", timeouts, u64::from(got < LONG)),
    }
}

pub struct Server {
    env: Env,
    pub stop: Shutdown,
    pub options: ServeOptions,
    running: ron_core::Join<(ServeReport, Instant)>,
}

impl Server {
    async fn start(bench: &Bench, grace: Duration, write: Duration) -> Result<Server, String> {
        let options = ServeOptions {
            close_grace: grace,
            write,
            ..ServeOptions::default()
        };
        Server::serving(bench, options, router(&bench.env)).await
    }

    pub async fn serving(
        bench: &Bench,
        options: ServeOptions,
        app: Router,
    ) -> Result<Server, String> {
        let (env, stop) = (bench.env.clone(), Shutdown::new());
        let listener = env.listen(AT).await.map_err(|e| format!("listen: {e}"))?;
        let (its, told, ended) = (options.clone(), stop.clone(), env.clone());
        let running = env.clone().spawn("drill", async move {
            let report = env.serve(listener, app, its, told).await;
            (report, env.now())
        });
        Ok(Server {
            env: ended,
            stop,
            options,
            running,
        })
    }

    pub async fn open(&self) -> Result<Conn, String> {
        let conn = self.env.connect(AT).await;
        conn.map_err(|error| format!("connect: {error}"))
    }

    pub async fn ended(self) -> Result<(ServeReport, Instant), String> {
        let ended = self.running.await;
        ended.map_err(|_| "the server ended without a report".to_owned())
    }
}

pub fn router(env: &Env) -> Router {
    let env = env.clone();
    let slow = move |axum::extract::Path(us): axum::extract::Path<u64>| {
        let env = env.clone();
        async move {
            env.sleep(Duration::from_micros(us)).await;
            "done"
        }
    };
    Router::new()
        .route("/", get(|| async { "ok" }))
        .route("/slow/{us}", get(slow))
        .route("/endless", get(std::future::pending::<&'static str>))
        .route("/long", get(|| async { vec![b'x'; LONG] }))
}

async fn ask(conn: &mut Conn, path: &str) -> Verdict {
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let sent = conn.write_all(request.as_bytes()).await;
    sent.map_err(|error| format!("a request could not be sent: {error}"))
}

/// One short answer, which comes in one piece or a few.
async fn read_answer(conn: &mut Conn) -> Result<String, String> {
    let mut text = String::new();
    while !text.ends_with("ok") {
        let mut piece = [0; 512];
        match conn.read(&mut piece).await {
            Ok(n @ 1..) => text.push_str(&String::from_utf8_lossy(&piece[..n])),
            other => return Err(format!("an answer broke off: {other:?} after {text:?}")),
        }
    }
    Ok(text)
}

/// All that comes until the other side closes.
async fn read_all(conn: &mut Conn) -> Vec<u8> {
    let mut all = Vec::new();
    // A cut is an end, too.
    let _ = conn.read_to_end(&mut all).await;
    all
}
