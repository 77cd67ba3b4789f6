//! Deadlines and their two headers: what each value means is known when it is written, so that nothing need be parsed.

use std::time::{Duration, Instant, SystemTime};

use http::{HeaderMap, HeaderValue};
use ron_core::deadline::{DEADLINE, Deadline, REQUEST_TIMEOUT};

use super::{Bench, Verdict, agree};

const MALFORMED: [&str; 14] = [
    "",
    "soon",
    "-1",
    "+1",
    "1e3",
    "1.2.3",
    ".5",
    " 1",
    "1 ",
    "0x10",
    "1,5",
    "inf",
    "\u{e9}",
    "9999999999999999999",
];

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

pub fn drill(bench: &mut Bench) -> Verdict {
    for _ in 0..12 {
        let (now, wall) = (bench.env.now(), bench.env.wall());
        read(bench, now, wall)?;
        write(bench, now, wall)?;
    }
    Ok(())
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn since_epoch(wall: SystemTime) -> Duration {
    wall.duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}

/// Of the grant and of all headers that can be read the smallest wins; the others are counted.
fn read(bench: &mut Bench, now: Instant, wall: SystemTime) -> Verdict {
    let granted = bench.ms(0, 6000);
    let (mut headers, mut least, mut malformed) = (HeaderMap::new(), granted, 0);
    for _ in 0..bench.pick(0, 3) {
        let (name, value, meant) = match bench.pick(0, 4) {
            0..=1 => timeout(bench),
            2..=3 => moment(bench, wall),
            _ => {
                let relative = bench.one_in(2);
                let name = if relative { REQUEST_TIMEOUT } else { DEADLINE };
                (name, bench.one_of(&MALFORMED).to_owned(), None)
            }
        };
        match meant {
            Some(meant) => least = least.min(meant),
            None => malformed += 1,
        }
        let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|e| e.to_string())?;
        headers.append(name, value);
    }
    let grant = Deadline::after(now, granted);
    let (came, counted) = Deadline::from_headers(&headers, now, wall, grant);
    let told = format!("{granted:?} granted, {headers:?}");
    agree(&told, came.instant() - now, least)?;
    agree(&format!("malformed of {headers:?}"), counted, malformed)?;
    agree("remaining", came.remaining(now), least)?;
    agree("past", came.is_past(now), least.is_zero())?;
    let other = Deadline::at(now + bench.ms(0, 6000));
    let earlier = came.instant().min(other.instant());
    agree("shrunk", came.shrink(other).instant(), earlier)
}

type Header = (http::HeaderName, String, Option<Duration>);

fn timeout(bench: &mut Bench) -> Header {
    let whole = bench.pick(0, 8);
    let digits = bench.pick(0, 6) as usize;
    let fraction = format!("{:06}", bench.pick(0, 999_999));
    let fraction = &fraction[..digits];
    // A millisecond is the finest that counts.
    let thousandths: String = fraction.chars().chain("000".chars()).take(3).collect();
    let meant = ms(whole * 1000 + thousandths.parse::<u64>().unwrap_or_default());
    let text = match (digits, bench.one_in(2)) {
        (0, true) => whole.to_string(),
        (0, false) => format!("{whole}."),
        _ => format!("{whole}.{fraction}"),
    };
    (REQUEST_TIMEOUT, text, Some(meant))
}

fn moment(bench: &mut Bench, wall: SystemTime) -> Header {
    let today = since_epoch(wall).as_millis() as u64;
    let at = match bench.pick(0, 6) {
        0 => today - bench.pick(0, 5000),
        1 => 0,
        2 => 999_999_999_999_999_999,
        _ => today + bench.pick(0, 6000),
    };
    let meant = ms(at).saturating_sub(since_epoch(wall));
    (DEADLINE, at.to_string(), Some(meant))
}

/// What goes out is what is left, rounded down, in place of what was there.
fn write(bench: &mut Bench, now: Instant, wall: SystemTime) -> Verdict {
    let left = Duration::from_nanos(bench.pick(0, 9_000_000_000));
    let late = Duration::from_nanos(bench.pick(0, 3_000_000_000));
    let deadline = Deadline::after(now, left);
    let (then, wall) = (now + late, wall + late);
    let left = left.saturating_sub(late);
    agree("remaining later", deadline.remaining(then), left)?;
    agree("past later", deadline.is_past(then), left.is_zero())?;
    let mut headers = HeaderMap::new();
    headers.append(REQUEST_TIMEOUT, HeaderValue::from_static("99"));
    headers.append(REQUEST_TIMEOUT, HeaderValue::from_static("98"));
    deadline.write_to(&mut headers, then, wall);
    let all = |name: http::HeaderName| -> Vec<String> {
        let values = headers.get_all(name).into_iter();
        values
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
            .collect()
    };
    let millis = left.as_millis();
    let timeout = format!("{}.{:03}", millis / 1000, millis % 1000);
    agree("request-timeout sent", all(REQUEST_TIMEOUT), vec![timeout])?;
    let at = (since_epoch(wall) + left).as_millis().to_string();
    agree("deadline sent", all(DEADLINE), vec![at])?;
    let farthest = Deadline::after(now, Duration::MAX);
    agree("the farthest deadline", farthest.remaining(now), YEAR)
}
