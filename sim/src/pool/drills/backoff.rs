//! Backoff: the bounds of each attempt by doubling one at a time, and draws that lie within them and fill them.

use std::time::Duration;

use ron_core::backoff::{Backoff, Jitter};

use super::{Bench, Verdict, agree, demand};

pub fn drill(bench: &mut Bench) -> Verdict {
    for _ in 0..4 {
        let schedule = draw(bench);
        let mut before = (Duration::ZERO, Duration::ZERO);
        for attempt in (0..12).chain([40, 63, 64, 1000, u32::MAX]) {
            let told = |what: &str| format!("{what} of {schedule:?} at {attempt}");
            let (low, high) = bounds(&schedule, attempt);
            agree(&told("floor"), schedule.floor(attempt), low)?;
            agree(&told("ceiling"), schedule.ceiling(attempt), high)?;
            demand(before.0 <= low && before.1 <= high, || told("a fall"))?;
            before = (low, high);
            let delay = schedule.delay(attempt, &mut bench.rng);
            demand(low <= delay && delay <= high, || {
                format!(
                    "{}: expected {low:?} to {high:?}, came {delay:?}",
                    told("delay")
                )
            })?;
        }
        spread(bench, &schedule)?;
    }
    Ok(())
}

fn draw(bench: &mut Bench) -> Backoff {
    let (low, wide, cap) = (bench.ms(1, 500), bench.ms(1, 400), bench.ms(0, 8000));
    match bench.pick(0, 3) {
        0 => Backoff::band(low, low + wide, cap),
        1 => Backoff::plus(low, cap),
        2 => Backoff {
            min: low,
            max: cap,
            jitter: Jitter::None,
        },
        _ => Backoff {
            min: low,
            max: cap,
            jitter: Jitter::Plus(wide),
        },
    }
}

/// `first` doubled that often, but no more than the cap.
fn doubled(first: Duration, times: u32, cap: Duration) -> Duration {
    let mut grown = first;
    for _ in 0..times {
        if grown >= cap || grown.is_zero() {
            break;
        }
        grown *= 2;
    }
    grown.min(cap)
}

pub fn bounds(schedule: &Backoff, attempt: u32) -> (Duration, Duration) {
    let Backoff { min, max, jitter } = *schedule;
    match jitter {
        Jitter::None => (doubled(min, attempt, max), doubled(min, attempt, max)),
        Jitter::Plus(extra) => {
            let low = doubled(min, attempt, max);
            (low, low + extra)
        }
        Jitter::Band(width) => {
            let top = min + width;
            let high = doubled(top, attempt, max);
            // In proportion to the first band, and never below it.
            let share = high.as_nanos() * min.as_nanos() / top.as_nanos();
            let low = Duration::from_nanos(share as u64);
            (low.max(min.min(high)), high)
        }
    }
}

/// Many who wait are not to come back together: draws reach both ends of what they may be.
fn spread(bench: &mut Bench, schedule: &Backoff) -> Verdict {
    let attempt = bench.pick(0, 20) as u32;
    let (low, high) = bounds(schedule, attempt);
    let quarter = (high - low) / 4;
    if quarter < Duration::from_micros(1) {
        return Ok(());
    }
    let draws: Vec<_> = (0..160)
        .map(|_| schedule.delay(attempt, &mut bench.rng))
        .collect();
    let reached =
        draws.iter().any(|d| *d < low + quarter) && draws.iter().any(|d| *d > high - quarter);
    demand(reached, || {
        let (least, most) = (draws.iter().min(), draws.iter().max());
        format!(
            "spread of {schedule:?} at {attempt}: expected {low:?} to {high:?}, came {least:?} to {most:?}"
        )
    })
}
