//! Bodies: the cap to the byte, gzip within its limits, and what is corrupt, however the pieces are cut.
//!
//! The reference knows the plain bytes, for it has compressed them.

use std::{convert::Infallible, io::Write, time::Duration};

use axum::{Router, body::Body, extract::Request, response::Response, routing::post};
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use futures_util::{StreamExt, stream};
use http::StatusCode;
use http_body_util::BodyExt;
use rand_core::Rng as _;
use ron_core::{
    admission::{Admission, AdmissionConfig, InflateLimits, Inflater, Limits},
    front::front,
    problem::{BodyFault, read_body},
    telemetry::Telemetry,
};
use tower::ServiceExt;

use super::{Bench, Verdict, agree, hands::Hand, problem::Told};

/// Input is judged after each of these, and at its end.
const STEP: usize = 4096;

pub async fn drill(bench: &mut Bench) -> Verdict {
    capped(bench).await?;
    for _ in 0..3 {
        expanded(bench).await?;
    }
    inflated(bench)?;
    slow(bench).await
}

fn house(bench: &Bench, limits: Limits) -> Router {
    let admission = Admission::new(&bench.env, &Telemetry::new("drill", ""), limits);
    let echo = |body: Body| read_body(body);
    let api = Router::new().route("/echo", post(echo));
    front(&bench.env, api, &admission.into(), Router::new())
}

fn limits() -> Limits {
    Limits {
        rate_per_s: None,
        ..AdmissionConfig::default().limits()
    }
}

/// Some that compress well, some that do not.
fn plain(bench: &mut Bench, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    bench.rng.fill_bytes(&mut bytes);
    let noise = bench.pick(0, 255) as u8;
    let byte = |byte: u8| if byte <= noise { byte } else { b'a' };
    bytes.into_iter().map(byte).collect()
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    // Into memory: neither can fail.
    let _ = encoder.write_all(data);
    encoder.finish().unwrap_or_default()
}

fn pieces(bench: &mut Bench, mut data: &[u8]) -> Vec<Bytes> {
    let mut pieces = Vec::new();
    let most = bench.one_of(&[1, 7, 100, STEP as u64, 1 << 20]);
    // A byte at a time is slow where there are many.
    let most = most.max(data.len() as u64 / 50).max(1);
    while !data.is_empty() {
        let len = data.len().min(bench.pick(1, most) as usize);
        pieces.push(Bytes::copy_from_slice(&data[..len]));
        data = &data[len..];
    }
    pieces
}

async fn send(router: Router, pieces: Vec<Bytes>, length: Option<usize>, gzip: bool) -> Response {
    let mut request = Request::post("/echo").header("x-corr-id", "mine");
    if let Some(length) = length {
        request = request.header("content-length", length);
    }
    if gzip {
        request = request.header("content-encoding", "gzip");
    }
    let pieces = pieces.into_iter().map(Ok::<_, Infallible>);
    let body = Body::from_stream(stream::iter(pieces));
    let request = request.body(body).expect("a sound request");
    match router.oneshot(request).await {
        Ok(answer) => answer,
        Err(never) => match never {},
    }
}

/// The body as the handler saw it, or the fault.
async fn expect(answer: Response, expected: Result<Vec<u8>, BodyFault>) -> Verdict {
    match expected {
        Ok(data) => {
            agree("status of a good body", answer.status(), StatusCode::OK)?;
            let seen = answer.into_body().collect().await;
            let seen = seen.map_err(|e| e.to_string())?.to_bytes();
            agree("what the handler read", seen, Bytes::from(data))
        }
        Err(fault) => {
            let (status, code) = match fault {
                BodyFault::TooLarge { .. } => (413, "body_too_large"),
                BodyFault::Ratio { .. } => (413, "decompress_ratio"),
                BodyFault::Expanded { .. } => (413, "decompress_too_large"),
                BodyFault::Timeout { .. } => (408, "body_timeout"),
                BodyFault::Corrupt => (400, "body_corrupt"),
                BodyFault::Lost => (400, "body_lost"),
                BodyFault::Framing => (400, "malformed_chunks"),
            };
            let status = StatusCode::from_u16(status).map_err(|e| e.to_string())?;
            Told::new(status, code).check(answer, "mine").await
        }
    }
}

/// A byte less than the cap, the cap, a byte more.
async fn capped(bench: &mut Bench) -> Verdict {
    let cap = bench.pick(1, 300);
    let router = house(
        bench,
        Limits {
            body_cap: cap,
            ..limits()
        },
    );
    for len in [cap - 1, cap, cap + 1, cap + bench.pick(1, 300)] {
        let data = plain(bench, len as usize);
        let pieces = pieces(bench, &data);
        let length = bench.one_in(2).then_some(data.len());
        let answer = send(router.clone(), pieces, length, false).await;
        let expected = if len > cap {
            Err(BodyFault::TooLarge { cap })
        } else {
            Ok(data)
        };
        let told = format!("{len} bytes of {cap}, length told {length:?}");
        expect(answer, expected)
            .await
            .map_err(|why| format!("{told}: {why}"))?;
    }
    Ok(())
}

/// What gzip may expand to: `allowed` by the end, if no step was beyond what its input allowed.
async fn expanded(bench: &mut Bench) -> Verdict {
    let len = bench.pick(0, 3000) as usize;
    let data = plain(bench, len);
    let mut packed = gzip(&data);
    let spoilt = bench.one_in(3);
    let (ratio, max_bytes) = match spoilt {
        true => (10_000, 1 << 20),
        false => around(bench, data.len(), packed.len()),
    };
    let router = house(
        bench,
        Limits {
            inflate: InflateLimits {
                max_ratio: ratio,
                max_bytes,
            },
            ..limits()
        },
    );
    let expected = match judged(data.len(), packed.len(), ratio, max_bytes) {
        Ok(()) if spoilt => {
            spoil(bench, &mut packed);
            Err(BodyFault::Corrupt)
        }
        Ok(()) => Ok(data),
        Err(fault) => Err(fault),
    };
    let pieces = pieces(bench, &packed);
    let length = bench.one_in(2).then_some(packed.len());
    let answer = send(router, pieces, length, true).await;
    let told = format!(
        "gzip of {len} in {}, {ratio}x, {max_bytes} at most",
        packed.len()
    );
    expect(answer, expected)
        .await
        .map_err(|why| format!("{told}: {why}"))
}

/// Limits that are just enough, just not, or plenty.
fn around(bench: &mut Bench, plain: usize, packed: usize) -> (u32, u64) {
    let needed = plain.div_ceil(packed).max(1) as u32;
    let ratio = match bench.pick(0, 3) {
        0 => needed,
        1 => needed.saturating_sub(1).max(1),
        _ => 1000,
    };
    let max_bytes = match bench.pick(0, 4) {
        0 => plain as u64,
        1 => (plain as u64).saturating_sub(1),
        2 => plain as u64 + 1,
        _ => 1 << 20,
    };
    (ratio, max_bytes)
}

/// For input of a single step.
fn judged(plain: usize, packed: usize, ratio: u32, max_bytes: u64) -> Result<(), BodyFault> {
    let by_ratio = packed as u64 * u64::from(ratio);
    if plain as u64 <= by_ratio.min(max_bytes) {
        return Ok(());
    }
    // Of two limits the lower one is told.
    Err(match by_ratio < max_bytes {
        true => BodyFault::Ratio { ratio },
        false => BodyFault::Expanded { cap: max_bytes },
    })
}

/// Broken off, or with a checksum that is not its own.
fn spoil(bench: &mut Bench, packed: &mut Vec<u8>) {
    if bench.one_in(2) {
        let kept = bench.pick(1, packed.len() as u64 - 1);
        packed.truncate(kept as usize);
    } else {
        let at = packed.len() - 1 - bench.index(8);
        packed[at] ^= 1 << bench.pick(0, 7);
    }
}

/// The inflater by itself, over many steps: the output is the same however the input is cut, and a body that swells
/// late is refused no later than the step in which it does.
fn inflated(bench: &mut Bench) -> Verdict {
    let len = bench.pick(1, 20_000) as usize;
    let data = plain(bench, len);
    let packed = gzip(&data);
    let roomy = InflateLimits {
        max_ratio: 2000,
        max_bytes: data.len() as u64,
    };
    let inflate = |bench: &mut Bench, limits| {
        let (mut inflater, mut out) = (Inflater::new(limits), Vec::new());
        for piece in pieces(bench, &packed) {
            out.extend(inflater.push(&piece)?);
        }
        out.extend(inflater.finish()?);
        Ok::<_, BodyFault>(out)
    };
    let came = inflate(bench, roomy).map(|out| out == data);
    agree(&format!("inflated {len}"), came, Ok(true))?;
    let tight = InflateLimits {
        max_bytes: data.len() as u64 - 1,
        ..roomy
    };
    let cap = tight.max_bytes;
    let came = inflate(bench, tight).map(|out| out.len());
    agree(
        &format!("inflated {len} beyond its cap"),
        came,
        Err(BodyFault::Expanded { cap }),
    )
}

/// A body that stays away is given up, not before its time and not long after.
async fn slow(bench: &mut Bench) -> Verdict {
    let limit = bench.ms(3, 20);
    let router = house(
        bench,
        Limits {
            body_timeout: limit,
            ..limits()
        },
    );
    let first = stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"half"))]);
    let body = Body::from_stream(first.chain(stream::pending()));
    let request = Request::post("/echo")
        .header("x-corr-id", "mine")
        .body(body);
    let request = request.expect("a sound request");
    let began = bench.env.now();
    let mut asked = Hand::new(async move { router.oneshot(request).await });
    loop {
        let came = asked.look();
        let passed = bench.env.now() - began;
        match came {
            Some(Ok(answer)) if passed >= limit => {
                let limit_ms = limit.as_millis() as u64;
                return expect(answer, Err(BodyFault::Timeout { limit_ms })).await;
            }
            Some(_) => {
                return Err(format!(
                    "a slow body: {limit:?} allowed, given up after {passed:?}"
                ));
            }
            None if passed > limit + super::slack(limit) => {
                return Err(format!(
                    "a slow body: {limit:?} allowed, still awaited after {passed:?}"
                ));
            }
            None => bench.env.sleep(Duration::from_millis(1)).await,
        }
    }
}
