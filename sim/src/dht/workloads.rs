//! What clients may be told to do to svc-dht: which calls a workload draws from.

use svc_dht::topology;

use crate::{
    ops::Draft,
    workload::{KEYED, Work, WorkloadKind, burst, with_keys},
};

pub const WORKLOADS: &[WorkloadKind] = &[
    kind("dht.put", |draft| with_keys(draft, &["dht.put"])),
    kind("dht.put_brief", |draft| {
        with_keys(draft, &["dht.put_brief"]);
    }),
    kind("dht.get", |draft| with_keys(draft, &["dht.get"])),
    kind("dht.provide", |draft| with_keys(draft, &["dht.provide"])),
    kind("dht.providers", |draft| {
        with_keys(draft, &["dht.providers"]);
    }),
    kind("dht.closest", |draft| with_keys(draft, &["dht.closest"])),
    kind("dht.mixed", |draft| {
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
        service: topology::NAME,
        keys: &["on", "at_s", "requests", "timeout_ms"],
        work: Work::Operations(|draft| burst(draft, "dht.closest")),
    },
];

const fn kind(name: &'static str, draw: fn(&mut Draft<'_>)) -> WorkloadKind {
    WorkloadKind {
        name,
        service: topology::NAME,
        keys: KEYED,
        work: Work::Operations(draw),
    }
}
