//! Every call of ron-kms's clients: what it is called in a scenario, what it does, and who does it.

use super::{
    Kind, auditor, batch, customer, data_key, operator, rare, rotate, sign, sign_first, sign_op,
    sign_op_other, switch, tokens, unwrap, verify, wrap,
};
use crate::{
    calls::{CallKind, call},
    kms::pedant,
};

pub const CALLS: &[CallKind] = &[
    call(
        "kms.sign",
        "signs with the newest version of key `arg`",
        |c, op| Box::pin(sign(c, op)),
    ),
    call(
        "kms.sign_first",
        "signs with version 1 of key `arg`",
        |c, op| Box::pin(sign_first(c, op)),
    ),
    call("kms.sign_op", "signs under operation id `arg`", |c, op| {
        Box::pin(sign_op(c, op))
    }),
    call(
        "kms.batch",
        "signs 16 messages at once with key `arg`",
        |c, op| Box::pin(batch(c, op)),
    ),
    call("kms.rotate", "gives key `arg` a new version", |c, op| {
        Box::pin(rotate(c, op))
    }),
    call(
        "kms.verify",
        "verifies the last signature of key `arg`",
        |c, op| Box::pin(verify(c, op)),
    ),
    call("kms.wrap", "wraps under key `arg`", |c, op| {
        Box::pin(wrap(c, op))
    }),
    call(
        "kms.unwrap",
        "unwraps the last blob of key `arg`",
        |c, op| Box::pin(unwrap(c, op)),
    ),
    call(
        "kms.data_key",
        "asks for a data key under key `arg`",
        |c, op| Box::pin(data_key(c, op)),
    ),
    call("kms.disable", "disables version 1 of key `arg`", |c, op| {
        Box::pin(switch(c, op, Kind::Signs, "disable"))
    }),
    call("kms.enable", "enables version 1 of key `arg`", |c, op| {
        Box::pin(switch(c, op, Kind::Signs, "enable"))
    }),
    call(
        "kms.disable_wrapping",
        "disables version 1 of wrapping key `arg`",
        |c, op| Box::pin(switch(c, op, Kind::Wraps, "disable")),
    ),
    call(
        "kms.enable_wrapping",
        "enables version 1 of wrapping key `arg`",
        |c, op| Box::pin(switch(c, op, Kind::Wraps, "enable")),
    ),
    call(
        "kms.sign_op_other",
        "signs another message under operation id `arg`",
        |c, op| Box::pin(sign_op_other(c, op)),
    ),
    call(
        "kms.verify_wrong",
        "verifies the last signature of key `arg` for another message",
        |c, op| Box::pin(rare::verify_wrong(c, op)),
    ),
    call(
        "kms.destroy_first",
        "schedules version 1 of key `arg` for destruction in a day",
        |c, op| Box::pin(rare::destroy_first(c, op)),
    ),
    call(
        "kms.cancel_first",
        "cancels the destruction of version 1 of key `arg`",
        |c, op| Box::pin(rare::cancel_first(c, op)),
    ),
    call(
        "kms.raise_minimum",
        "lets only the newest version of key `arg` sign",
        |c, op| Box::pin(rare::raise_minimum(c, op)),
    ),
    call(
        "kms.rotate_daily",
        "has key `arg` rotated once it is a day old",
        |c, op| Box::pin(rare::rotate_daily(c, op)),
    ),
    call(
        "kms.tenant_sign",
        "signs with key `arg` as its tenant, through an ingress",
        |c, op| Box::pin(rare::tenant_sign(c, op)),
    ),
    call(
        "kms.tenant_foreign",
        "asks to sign with, rotate or see key `arg` as another tenant",
        |c, op| Box::pin(rare::tenant_foreign(c, op)),
    ),
    call(
        "kms.sign_checked",
        "signs up to five messages with key `arg` and checks each signature with the public key",
        |c, op| Box::pin(customer::sign_checked(c, op)),
    ),
    call(
        "kms.wrap_checked",
        "wraps under key `arg` and a context, opens it, and tries in vain with other contexts",
        |c, op| Box::pin(customer::wrap_checked(c, op)),
    ),
    call(
        "kms.data_key_checked",
        "asks for a data key under key `arg` and opens its wrapped half",
        |c, op| Box::pin(customer::data_key_checked(c, op)),
    ),
    call(
        "kms.attest_checked",
        "asks for evidence of key `arg` and checks it",
        |c, op| Box::pin(customer::attest_checked(c, op)),
    ),
    call(
        "kms.hybrid_checked",
        "makes a hybrid key, signs, and verifies with both halves and with one",
        |c, op| Box::pin(customer::hybrid_checked(c, op)),
    ),
    call(
        "kms.rotate_wrapping",
        "gives wrapping key `arg` a new version",
        |c, op| Box::pin(customer::rotate_wrapping(c, op)),
    ),
    call("kms.wrap_op", "wraps under operation id `arg`", |c, op| {
        Box::pin(customer::wrap_op(c, op))
    }),
    call("kms.list", "lists all keys, a few at a time", |c, op| {
        Box::pin(customer::list(c, op))
    }),
    call(
        "kms.show",
        "looks at key `arg` and all its versions",
        |c, op| Box::pin(customer::show(c, op)),
    ),
    call(
        "kms.key_set",
        "checks the last signature of key `arg` with the published keys",
        |c, op| Box::pin(customer::key_set(c, op)),
    ),
    call(
        "kms.audit",
        "reads the checkpoint and one record with its proof",
        |c, op| Box::pin(auditor::audit(c, op)),
    ),
    call(
        "kms.token_good",
        "signs with key `arg`, or reads, by a good token of its tenant",
        |c, op| Box::pin(tokens::good(c, op)),
    ),
    call(
        "kms.token_wrong",
        "asks for something by a token that is wrong in one way, or nearly",
        |c, op| Box::pin(tokens::wrong(c, op)),
    ),
    call(
        "kms.token_again",
        "signs with key `arg` by the token used before, for as long as it lasts and a while longer",
        |c, op| Box::pin(tokens::again(c, op)),
    ),
    call(
        "kms.token_scopes",
        "asks for anything with the scopes it needs, or with all but one",
        |c, op| Box::pin(tokens::scopes(c, op)),
    ),
    call(
        "kms.token_foreign",
        "asks for key `arg` by a good token of another tenant",
        |c, op| Box::pin(tokens::foreign(c, op)),
    ),
    call(
        "kms.reload",
        "writes settings that can be used, or cannot, or not before a restart, and has them read",
        |c, op| Box::pin(operator::reload(c, op)),
    ),
    call(
        "kms.cache_ttl",
        "sets anew for how long verifying goes on by what is known",
        |c, op| Box::pin(operator::cache_ttl(c, op)),
    ),
    call(
        "kms.tenant_verify",
        "verifies the last signature of key `arg` as its tenant, through an ingress",
        |c, op| Box::pin(rare::tenant_verify(c, op)),
    ),
    call(
        "kms.flood_op",
        "signs under an operation id of its own, as tenant t1",
        |c, op| Box::pin(rare::flood_op(c, op)),
    ),
    call(
        "kms.fill_versions",
        "rotates a key of its own until it has as many versions as a key may have, and once more",
        |c, op| Box::pin(customer::fill_versions(c, op)),
    ),
    call(
        "kms.destroy_whole",
        "schedules all versions of key `arg` for destruction in a day",
        |c, op| Box::pin(rare::destroy_whole(c, op)),
    ),
    call(
        "kms.rotate_limit",
        "has key `arg` rotated after a time that the settings allow or not",
        |c, op| Box::pin(operator::rotate_limit(c, op)),
    ),
    call(
        "kms.pedant",
        "asks for anything, many times, and compares all of it with a reference; `arg` 1 moves the clock, 2 restarts the node, 3 both",
        |c, op| Box::pin(pedant::session(c, op)),
    ),
];
