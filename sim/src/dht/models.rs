//! The models of svc-dht as `sim models` checks them: small, but every state of them.

use std::time::Instant;

use svc_dht::models::{bucket::BucketWorld, lookup::LookupWorld};

use crate::models::{ModelKind, check, explore};

pub const MODELS: &[ModelKind] = &[
    ModelKind {
        name: "dht.lookup",
        about: "one lookup whose peers answer early, late or never, lie and reset, in every order",
        check: || check(lookup()),
        explore: |addr| explore(lookup(), addr),
    },
    ModelKind {
        name: "dht.bucket",
        about: "one bucket: peers met and named, pings lost, deaths, a crash with a warm restart",
        check: || check(BUCKET),
        explore: |addr| explore(BUCKET, addr),
    },
];

fn lookup() -> LookupWorld {
    LookupWorld {
        peers: 4,
        lies: 1,
        resets: 1,
        silent: 1,
        flaw: None,
        origin: Instant::now(),
    }
}

const BUCKET: BucketWorld = BucketWorld {
    meetings: 3,
    hints: 0,
    unfit: 1,
    deaths: 1,
    lost_pings: 1,
    lost_reports: 1,
    ticks: 1,
    crashes: 1,
    flaw: None,
};
