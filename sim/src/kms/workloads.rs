//! What clients may be told to do to ron-kms: which calls a workload draws from.

use ron_kms::topology;

use crate::{
    ops::Draft,
    workload::{KEYED, Work, WorkloadKind, with_keys},
};

pub const WORKLOADS: &[WorkloadKind] = &[
    kind("kms.sign", |draft| with_keys(draft, &["kms.sign"])),
    kind("kms.batch", |draft| with_keys(draft, &["kms.batch"])),
    kind("kms.rotate", |draft| with_keys(draft, &["kms.rotate"])),
    kind("kms.verify", |draft| with_keys(draft, &["kms.verify"])),
    kind("kms.sign_op", |draft| {
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
    kind("kms.lives", |draft| {
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
    kind("kms.ends", |draft| {
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
    kind("kms.show", |draft| with_keys(draft, &["kms.show"])),
    kind("kms.put_away", |draft| {
        with_keys(
            draft,
            &["kms.rotate_daily", "kms.disable", "kms.destroy_first"],
        );
    }),
    kind("kms.switch_shown", |draft| {
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
    kind("kms.fill_versions", |draft| {
        with_keys(draft, &["kms.fill_versions"]);
    }),
    kind("kms.flood_op", |draft| with_keys(draft, &["kms.flood_op"])),
    kind("kms.cache_ttl", |draft| {
        with_keys(draft, &["kms.cache_ttl"]);
    }),
    kind("kms.tenants_verify", |draft| {
        with_keys(
            draft,
            &["kms.tenant_sign", "kms.tenant_verify", "kms.tenant_verify"],
        );
    }),
    kind("kms.tenants", |draft| {
        with_keys(
            draft,
            &["kms.tenant_sign", "kms.tenant_sign", "kms.tenant_foreign"],
        );
    }),
    kind("kms.tokens", |draft| {
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
    kind("kms.operator", |draft| {
        with_keys(
            draft,
            &["kms.reload", "kms.rotate_limit", "kms.rotate_limit"],
        );
    }),
    kind("kms.wrap", |draft| {
        with_keys(draft, &["kms.wrap", "kms.unwrap", "kms.data_key"]);
    }),
    kind("kms.switch", |draft| {
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
    kind("kms.switch_wrapping", |draft| {
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
    kind("kms.switch_verified", |draft| {
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
    kind("kms.minimum", |draft| {
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
    kind("kms.customer", |draft| {
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
    kind("kms.pedant", |draft| with_keys(draft, &["kms.pedant"])),
    kind("kms.audit", |draft| with_keys(draft, &["kms.audit"])),
    kind("kms.mixed", |draft| {
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
];

const fn kind(name: &'static str, draw: fn(&mut Draft<'_>)) -> WorkloadKind {
    WorkloadKind {
        name,
        service: topology::NAME,
        keys: KEYED,
        work: Work::Operations(draw),
    }
}
