//! What the issuer publishes when, what its keys are, and when it answers nonsense: all of it drawn from the seed, so
//! that the issuer, whoever signs tokens and a restart agree.
//!
//! Always: at least one key is published; a key that was withdrawn never comes back.

use std::time::Duration;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use rand_core::Rng as _;

use super::IssuerConfig;
use crate::seed::{self, SimRng};

/// A key that only nonsense names.
pub const STRAY: &str = "stray";
/// Published, but a secret that its readers share: no token of it counts.
pub const SHARED: &str = "shared";
/// Published, but not to sign with.
pub const FOR_ENCRYPTION: &str = "enc";

/// What an answer can be that nobody may believe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    Broken,
    Gone,
    Moved,
    Late,
    Torn,
    Garbage,
    Twice,
    Keyless,
    Huge,
}

const TROUBLES: [Trouble; 9] = [
    Trouble::Broken,
    Trouble::Gone,
    Trouble::Moved,
    Trouble::Late,
    Trouble::Torn,
    Trouble::Garbage,
    Trouble::Twice,
    Trouble::Keyless,
    Trouble::Huge,
];

/// No run lasts longer.
const LAST: Duration = Duration::from_secs(4 * 3600);
/// A world may begin in peace.
const PEACE: Duration = Duration::from_secs(20);

pub struct Schedule {
    seed: u64,
    max_age_s: Option<u64>,
    /// By number: from when to when it is published.
    keys: Vec<(Duration, Duration)>,
    troubles: Vec<(Duration, Duration, Trouble)>,
}

/// The name of a key.
pub fn kid(number: usize) -> String {
    format!("k{number}")
}

impl Schedule {
    pub fn draw(seed: u64, config: &IssuerConfig) -> Schedule {
        let mut rng = seed::stream(seed, "issuer");
        let max_age_s = Some(config.max_age_s).filter(|seconds| *seconds > 0);
        Schedule {
            seed,
            max_age_s,
            keys: draw_keys(&mut rng, config),
            troubles: draw_troubles(&mut rng, config),
        }
    }

    pub fn max_age_s(&self) -> Option<u64> {
        self.max_age_s
    }

    /// Numbers of the keys that are published then, the oldest first.
    pub fn published(&self, at: Duration) -> impl Iterator<Item = usize> {
        let among = self.keys.iter().enumerate();
        among.filter_map(move |(number, (from, to))| (*from <= at && at < *to).then_some(number))
    }

    /// Numbers of the keys that were withdrawn before then, the last one first.
    pub fn withdrawn(&self, at: Duration) -> impl Iterator<Item = usize> {
        let among = self.keys.iter().enumerate().rev();
        among.filter_map(move |(number, (_, to))| (*to <= at).then_some(number))
    }

    pub fn trouble(&self, at: Duration) -> Option<Trouble> {
        let now = self
            .troubles
            .iter()
            .find(|(from, to, _)| *from <= at && at < *to);
        now.map(|(_, _, trouble)| *trouble)
    }

    /// The secret of a key, by its name.
    pub fn secret(&self, kid: &str) -> [u8; 32] {
        let mut secret = [0; 32];
        seed::stream(self.seed, &format!("issuer key {kid}")).fill_bytes(&mut secret);
        secret
    }

    pub fn pair(&self, kid: &str) -> Ed25519KeyPair {
        Ed25519KeyPair::from_seed_unchecked(&self.secret(kid)).expect("any 32 bytes are a seed")
    }

    pub fn public(&self, kid: &str) -> Vec<u8> {
        self.pair(kid).public_key().as_ref().to_vec()
    }
}

/// Each key comes when its turn is; the one before goes a while later, never before.
fn draw_keys(rng: &mut SimRng, config: &IssuerConfig) -> Vec<(Duration, Duration)> {
    let mut keys = Vec::new();
    let mut from = Duration::ZERO;
    while from < LAST {
        let next = from + around(rng, config.rotate_every_s);
        let overlap = Duration::from_millis(seed::pick(rng, 0, config.overlap_s * 1000));
        keys.push((from, next + overlap));
        from = next;
    }
    keys
}

fn draw_troubles(rng: &mut SimRng, config: &IssuerConfig) -> Vec<(Duration, Duration, Trouble)> {
    let mut troubles = Vec::new();
    if config.trouble_every_s == 0 {
        return troubles;
    }
    let mut from = PEACE;
    while from < LAST {
        from += around(rng, config.trouble_every_s);
        let lasts = Duration::from_millis(seed::pick(rng, 500, config.trouble_s * 1000));
        let kind = seed::pick(rng, 0, TROUBLES.len() as u64 - 1) as usize;
        troubles.push((from, from + lasts, TROUBLES[kind]));
        from += lasts;
    }
    troubles
}

/// From half to one and a half of it.
fn around(rng: &mut SimRng, seconds: u64) -> Duration {
    Duration::from_millis(seed::pick(rng, seconds * 500, seconds * 1500))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_key_is_always_published_and_none_comes_back() {
        for seed in 0..50 {
            let config = IssuerConfig {
                overlap_s: 0,
                trouble_every_s: 30,
                ..IssuerConfig::default()
            };
            let schedule = Schedule::draw(seed, &config);
            let mut gone: Vec<usize> = Vec::new();
            for second in (0..LAST.as_secs()).step_by(7) {
                let at = Duration::from_secs(second);
                let now: Vec<usize> = schedule.published(at).collect();
                assert!(!now.is_empty(), "seed {seed} at {at:?}");
                assert!(now.iter().all(|key| !gone.contains(key)));
                gone = schedule.withdrawn(at).collect();
            }
            assert!(schedule.trouble(PEACE).is_none());
        }
    }

    #[test]
    fn its_keys_follow_from_the_seed() {
        let draw = |seed| Schedule::draw(seed, &IssuerConfig::default()).public("k1");
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }
}
