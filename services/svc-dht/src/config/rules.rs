//! What the parts of a node keep to, from what is configured.

use std::time::Duration;

use ron_core::backoff::Backoff;

use super::Config;
use crate::{
    breaker::BreakerRules,
    identity::NetworkId,
    limiter::Limits,
    link::rules::LinkRules,
    lookup::LookupRules,
    record_store::StoreQuotas,
    routing::{Diversity, Rules},
};

/// Peers whose share of the limits is told apart.
const LIMITED_PEERS: usize = 512;

pub fn quotas(config: &Config) -> StoreQuotas {
    let records = &config.records;
    StoreQuotas {
        per_publisher: records.per_publisher,
        providers_per_key: records.providers_per_key,
        max_bytes: records.total_bytes,
        clock_skew_ms: records.clock_skew_ms,
        ..StoreQuotas::default()
    }
}

pub fn routing(config: &Config) -> Rules {
    let routing = &config.routing;
    let short = |n: usize| u16::try_from(n).unwrap_or(u16::MAX);
    Rules {
        k: config.lookup.k,
        replacements: routing.replacements,
        dead_after: u8::try_from(routing.dead_after).unwrap_or(u8::MAX),
        fresh_s: u32::try_from(routing.refresh_ms / 1000)
            .unwrap_or(u32::MAX)
            .max(1),
        diversity: match routing.diversity {
            true => Diversity {
                per_bucket: short(routing.diversity_bucket),
                per_table: short(routing.diversity_table),
            },
            false => Diversity::OFF,
        },
        ..Rules::default()
    }
}

pub fn lookup(config: &Config) -> LookupRules {
    let (lookup, ms) = (&config.lookup, Duration::from_millis);
    LookupRules {
        k: lookup.k,
        alpha: lookup.alpha,
        beta: lookup.beta,
        hop_budget: u8::try_from(lookup.hop_budget).unwrap_or(u8::MAX),
        rpc_timeout: ms(lookup.rpc_timeout_ms),
        hedge_after: ms(lookup.hedge_after_ms),
        tries: u8::try_from(lookup.retry_max).unwrap_or(u8::MAX),
        backoff: Backoff::band(
            ms(lookup.retry_min_ms),
            ms(lookup.retry_max_ms),
            ms(lookup.retry_cap_ms),
        ),
        diverse: config.routing.diversity,
        per_subnet: match config.routing.diversity {
            true => config.routing.diversity_table,
            false => usize::MAX,
        },
        ..LookupRules::default()
    }
}

pub fn link(config: &Config, network: NetworkId, port: u16) -> LinkRules {
    let (link, ms) = (&config.link, Duration::from_millis);
    LinkRules {
        max_outbound: link.max_outbound,
        max_inbound: link.max_inbound,
        max_frame_bytes: link.max_frame_bytes as usize,
        connect: ms(link.connect_timeout_ms),
        read: ms(link.read_timeout_ms),
        write: ms(link.write_timeout_ms),
        idle: ms(link.idle_timeout_ms),
        limits: limits(config),
        breaker: BreakerRules {
            failures: link.breaker_after,
            open: ms(link.breaker_open_ms),
            probes: u8::try_from(link.breaker_probes).unwrap_or(1),
            ..BreakerRules::default()
        },
        ..LinkRules::new(network, port)
    }
}

/// 0 is no limit.
fn limits(config: &Config) -> Limits {
    let limits = &config.limits;
    let or_none = |n: u32| if n == 0 { u32::MAX } else { n };
    Limits {
        requests_per_s: or_none(limits.rps),
        bytes_per_s: or_none(limits.bytes_per_s),
        in_flight: limits.inflight,
        peer_share_percent: limits.peer_share_percent,
        peers: LIMITED_PEERS,
    }
}
