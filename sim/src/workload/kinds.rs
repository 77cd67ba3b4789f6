//! The catalogue of workloads: what each draws before a world begins, from its clients, its pace and its keys.

use super::{Work, WorkloadKind, poll_readiness};
use crate::{
    ops::Draft,
    seed::{self, SimRng},
};

const PACED: &[&str] = &[
    "on",
    "clients",
    "rate_per_s",
    "at_s",
    "for_s",
    "requests",
    "timeout_ms",
];

pub const WORKLOAD_KINDS: &[WorkloadKind] = &[
    WorkloadKind {
        name: "pool.put",
        service: "pool",
        keys: PACED,
        work: Work::Operations(|draft| paced(draft, |_| ("pool.put", 0))),
    },
    WorkloadKind {
        name: "pool.burst",
        service: "pool",
        keys: &["on", "at_s", "requests", "timeout_ms"],
        work: Work::Operations(|draft| burst(draft, "pool.put")),
    },
    WorkloadKind {
        name: "pool.sizes",
        service: "pool",
        keys: &[
            "on",
            "clients",
            "rate_per_s",
            "at_s",
            "for_s",
            "requests",
            "timeout_ms",
            "bytes",
        ],
        work: Work::Operations(|draft| {
            let bytes = draft.drawn.bytes;
            paced(draft, |rng| ("pool.put_sized", bytes.draw_count(rng)));
        }),
    },
    WorkloadKind {
        name: "pool.hurry",
        service: "pool",
        keys: &[
            "on",
            "clients",
            "rate_per_s",
            "at_s",
            "for_s",
            "requests",
            "timeout_ms",
            "within_ms",
        ],
        work: Work::Operations(|draft| {
            let within = draft.drawn.within_ms;
            paced(draft, |rng| ("pool.put_by", within.draw_count(rng).max(1)));
        }),
    },
    kms_calls("kms.sign", |draft| with_keys(draft, &["kms.sign"])),
    kms_calls("kms.batch", |draft| with_keys(draft, &["kms.batch"])),
    kms_calls("kms.rotate", |draft| with_keys(draft, &["kms.rotate"])),
    kms_calls("kms.verify", |draft| with_keys(draft, &["kms.verify"])),
    kms_calls("kms.sign_op", |draft| {
        with_keys(
            draft,
            &[
                "kms.sign_op",
                "kms.sign_op",
                "kms.sign_op",
                "kms.sign_op_other",
            ],
        );
    }),
    kms_calls("kms.lives", |draft| {
        with_keys(
            draft,
            &[
                "kms.sign",
                "kms.sign_first",
                "kms.sign_first",
                "kms.rotate",
                "kms.destroy_first",
                "kms.cancel_first",
                "kms.enable",
                "kms.raise_minimum",
                "kms.rotate_daily",
            ],
        );
    }),
    kms_calls("kms.ends", |draft| {
        with_keys(
            draft,
            &[
                "kms.rotate",
                "kms.rotate",
                "kms.rotate",
                "kms.destroy_whole",
            ],
        );
    }),
    kms_calls("kms.show", |draft| with_keys(draft, &["kms.show"])),
    kms_calls("kms.put_away", |draft| {
        with_keys(
            draft,
            &["kms.rotate_daily", "kms.disable", "kms.destroy_first"],
        );
    }),
    kms_calls("kms.switch_shown", |draft| {
        with_keys(
            draft,
            &[
                "kms.disable",
                "kms.enable",
                "kms.show",
                "kms.show",
                "kms.verify",
            ],
        );
    }),
    kms_calls("kms.fill_versions", |draft| {
        with_keys(draft, &["kms.fill_versions"]);
    }),
    kms_calls("kms.flood_op", |draft| with_keys(draft, &["kms.flood_op"])),
    kms_calls("kms.cache_ttl", |draft| {
        with_keys(draft, &["kms.cache_ttl"]);
    }),
    kms_calls("kms.tenants_verify", |draft| {
        with_keys(
            draft,
            &["kms.tenant_sign", "kms.tenant_verify", "kms.tenant_verify"],
        );
    }),
    kms_calls("kms.tenants", |draft| {
        with_keys(
            draft,
            &["kms.tenant_sign", "kms.tenant_sign", "kms.tenant_foreign"],
        );
    }),
    kms_calls("kms.tokens", |draft| {
        with_keys(
            draft,
            &[
                "kms.token_good",
                "kms.token_good",
                "kms.token_wrong",
                "kms.token_wrong",
                "kms.token_wrong",
                "kms.token_again",
                "kms.token_again",
                "kms.token_again",
                "kms.token_scopes",
                "kms.token_scopes",
                "kms.token_foreign",
            ],
        );
    }),
    kms_calls("kms.operator", |draft| {
        with_keys(
            draft,
            &["kms.reload", "kms.rotate_limit", "kms.rotate_limit"],
        );
    }),
    kms_calls("kms.wrap", |draft| {
        with_keys(draft, &["kms.wrap", "kms.unwrap", "kms.data_key"]);
    }),
    kms_calls("kms.switch", |draft| {
        with_keys(
            draft,
            &[
                "kms.sign_first",
                "kms.sign_first",
                "kms.disable",
                "kms.enable",
            ],
        );
    }),
    kms_calls("kms.switch_wrapping", |draft| {
        with_keys(
            draft,
            &[
                "kms.wrap",
                "kms.unwrap",
                "kms.unwrap",
                "kms.data_key",
                "kms.disable_wrapping",
                "kms.enable_wrapping",
            ],
        );
    }),
    kms_calls("kms.switch_verified", |draft| {
        with_keys(
            draft,
            &[
                "kms.sign_first",
                "kms.verify",
                "kms.verify",
                "kms.disable",
                "kms.enable",
            ],
        );
    }),
    kms_calls("kms.minimum", |draft| {
        with_keys(
            draft,
            &[
                "kms.sign_first",
                "kms.sign_first",
                "kms.rotate",
                "kms.raise_minimum",
            ],
        );
    }),
    kms_calls("kms.customer", |draft| {
        with_keys(
            draft,
            &[
                "kms.sign_checked",
                "kms.sign_checked",
                "kms.wrap_checked",
                "kms.data_key_checked",
                "kms.attest_checked",
                "kms.hybrid_checked",
                "kms.rotate",
                "kms.rotate_wrapping",
                "kms.wrap",
                "kms.unwrap",
                "kms.wrap_op",
                "kms.list",
                "kms.show",
                "kms.key_set",
                "kms.audit",
            ],
        );
    }),
    kms_calls("kms.pedant", |draft| with_keys(draft, &["kms.pedant"])),
    kms_calls("kms.audit", |draft| with_keys(draft, &["kms.audit"])),
    kms_calls("kms.mixed", |draft| {
        with_keys(
            draft,
            &[
                "kms.sign",
                "kms.sign",
                "kms.sign",
                "kms.verify",
                "kms.verify_wrong",
                "kms.wrap",
                "kms.unwrap",
                "kms.rotate",
                "kms.batch",
                "kms.data_key",
                "kms.sign_op",
            ],
        );
    }),
    dht_calls("dht.put", |draft| with_keys(draft, &["dht.put"])),
    dht_calls("dht.put_brief", |draft| {
        with_keys(draft, &["dht.put_brief"]);
    }),
    dht_calls("dht.get", |draft| with_keys(draft, &["dht.get"])),
    dht_calls("dht.provide", |draft| with_keys(draft, &["dht.provide"])),
    dht_calls("dht.providers", |draft| {
        with_keys(draft, &["dht.providers"]);
    }),
    dht_calls("dht.closest", |draft| with_keys(draft, &["dht.closest"])),
    dht_calls("dht.mixed", |draft| {
        with_keys(
            draft,
            &[
                "dht.put",
                "dht.get",
                "dht.get",
                "dht.get",
                "dht.provide",
                "dht.providers",
                "dht.closest",
            ],
        );
    }),
    WorkloadKind {
        name: "dht.all_at_once",
        service: "svc-dht",
        keys: &["on", "at_s", "requests", "timeout_ms"],
        work: Work::Operations(|draft| burst(draft, "dht.closest")),
    },
    WorkloadKind {
        name: "ready.poll",
        service: "",
        keys: &["on", "every_ms", "at_s", "for_s"],
        work: Work::Watch(|job| Box::pin(poll_readiness(job))),
    },
];

/// Every client acts at its own jittered pace, on one node after the other.
fn paced(draft: &mut Draft<'_>, mut what: impl FnMut(&mut SimRng) -> (&'static str, u64)) {
    for client in 0..draft.drawn.clients as u32 {
        for (turn, at) in draft.moments().into_iter().enumerate() {
            let (call, arg) = what(draft.rng);
            draft.add(at, client, client as usize + turn, call, arg);
        }
    }
}

const fn dht_calls(name: &'static str, draw: fn(&mut Draft<'_>)) -> WorkloadKind {
    WorkloadKind {
        name,
        service: "svc-dht",
        keys: KEYED,
        work: Work::Operations(draw),
    }
}

const fn kms_calls(name: &'static str, draw: fn(&mut Draft<'_>)) -> WorkloadKind {
    WorkloadKind {
        name,
        service: "ron-kms",
        keys: KEYED,
        work: Work::Operations(draw),
    }
}

const KEYED: &[&str] = &[
    "on",
    "clients",
    "rate_per_s",
    "at_s",
    "for_s",
    "requests",
    "timeout_ms",
    "slots",
];

/// Each operation draws one of the calls and one of the workload's keys.
fn with_keys(draft: &mut Draft<'_>, calls: &'static [&'static str]) {
    let slots = draft.drawn.slots;
    paced(draft, |rng| {
        let call = calls[seed::pick(rng, 0, calls.len() as u64 - 1) as usize];
        (call, slots.draw_count(rng))
    });
}

/// All requests at once: a queue that was never full proves nothing about being full.
fn burst(draft: &mut Draft<'_>, call: &str) {
    let at = draft.drawn.at;
    for client in 0..draft.drawn.requests.unwrap_or(100) as u32 {
        draft.add(at, client, client as usize, call, 0);
    }
}
