//! The token bucket in exact arithmetic, through bursts, trickles and long idle times, and a clock that stands still.

use std::time::Duration;

use ron_core::admission::{InFlight, TokenBucket};

use super::{Bench, Verdict, agree};

pub fn drill(bench: &mut Bench) -> Verdict {
    for _ in 0..3 {
        bucket(bench)?;
    }
    in_flight(bench)
}

fn bucket(bench: &mut Bench) -> Verdict {
    let (rate, burst) = match bench.pick(0, 3) {
        0 => (bench.pick(0, 3) as u32, bench.pick(0, 3) as u32),
        1 => (u32::MAX, u32::MAX),
        _ => (bench.pick(1, 2000) as u32, bench.pick(1, 40) as u32),
    };
    let mut now = bench.env.now();
    let mut bucket = TokenBucket::new(rate, burst, now);
    // Billionths of a token: a nanosecond brings as many as tokens come in a second.
    let (rate, full) = (u128::from(rate.max(1)), u128::from(burst.max(1)) * TOKEN);
    let mut level = full;
    for n in 0..80 {
        let passed = match bench.pick(0, 9) {
            0..=5 => Duration::ZERO,
            6..=7 => Duration::from_nanos(bench.pick(0, 2_000_000_000 / rate as u64)),
            8 => bench.ms(0, 5000),
            _ => Duration::from_secs(bench.pick(0, 400 * 24 * 3600)),
        };
        now += passed;
        level = full.min(level + passed.as_nanos() * rate);
        let expected = if level >= TOKEN {
            level -= TOKEN;
            Ok(())
        } else {
            let missing = TOKEN - level;
            Err(Duration::from_nanos(missing.div_ceil(rate) as u64))
        };
        // A clock that was read earlier brings nothing, and takes nothing away.
        let read = if bench.one_in(8) {
            now - bench.ms(0, 3)
        } else {
            now
        };
        let read = if passed.is_zero() { read } else { now };
        let told = format!("bucket of {rate}/s and {burst}, request {n}");
        agree(&told, bucket.try_take(read), expected)?;
    }
    Ok(())
}

const TOKEN: u128 = 1_000_000_000;

fn in_flight(bench: &mut Bench) -> Verdict {
    let max = bench.pick(0, 5) as usize;
    let places = InFlight::new(max);
    let mut held = Vec::new();
    for _ in 0..40 {
        if bench.one_in(2) {
            let permit = places.clone().try_enter();
            agree(
                "in_flight: a place is free",
                permit.is_some(),
                held.len() < max,
            )?;
            held.extend(permit);
        } else if !held.is_empty() {
            drop(held.remove(bench.index(held.len())));
        }
        agree("in_flight: taken", places.now(), held.len())?;
    }
    Ok(())
}
