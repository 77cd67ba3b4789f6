//! What connections have counted, in the words of the metrics.

use std::sync::atomic::Ordering::Relaxed;

use crate::{
    limiter::Kind,
    link::{
        error::TimedOut,
        stats::{FRAME_CODES, HANDSHAKE_CODES},
    },
    metrics::{Family, Gauges, Metrics},
    peers::Peers,
    wire::message::Op,
};

/// Brings the plain counters up to date and returns those that a word tells apart.
pub fn counts(peers: &Peers, metrics: &Metrics) -> Vec<(Family, &'static str, u64)> {
    let stats = peers.stats();
    let hot = &metrics.hot;
    for (ours, theirs) in [
        (&hot.connections_in, &stats.accepted),
        (&hot.connections_out, &stats.dialled),
        (&hot.connections_refused, &stats.inbound_refused),
        (&hot.breaker_open, &stats.breaker_opened),
    ] {
        ours.store(theirs.get(), Relaxed);
    }
    let rpc = Op::ALL.into_iter().map(TimedOut::Rpc);
    let timeouts = [TimedOut::Connect, TimedOut::Read, TimedOut::Write];
    let timeouts = timeouts.into_iter().chain(rpc);
    let mut counts: Vec<_> = timeouts
        .map(|what| (Family::IoTimeouts, what.name(), stats.timeouts(what)))
        .collect();
    counts.extend([
        (Family::NotReady, "draining", stats.refused_not_ready.get()),
        (
            Family::QuotaReject,
            "connection_in_flight",
            stats.refused_in_flight.get(),
        ),
        (
            Family::QuotaReject,
            "connection_outbox",
            stats.refused_outbox.get(),
        ),
        (
            Family::RecordsRejected,
            "not_verified",
            stats.refused_not_verified.get(),
        ),
        (Family::BusyEndpoint, "breaker", stats.breaker_refused.get()),
    ]);
    let quotas =
        Kind::ALL.map(|kind| (Family::QuotaReject, kind.name(), stats.quota_rejected(kind)));
    counts.extend(quotas);
    let frames = FRAME_CODES.iter().map(|code| {
        let count = stats.frames_rejected(code);
        (Family::FramesRejected, *code, count)
    });
    let handshakes = HANDSHAKE_CODES.iter().map(|code| {
        let count = stats.handshakes_rejected(code);
        (Family::HandshakesRejected, *code, count)
    });
    counts.extend(frames.chain(handshakes).filter(|(_, _, count)| *count > 0));
    counts
}

pub fn gauges(peers: &Peers, gauges: Gauges) -> Gauges {
    let (outbound, inbound) = peers.open();
    Gauges {
        connections: (outbound + inbound) as u64,
        ..gauges
    }
}
