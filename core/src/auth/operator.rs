//! The operator's token: whoever can read the data folder of a process may tell it to reload or to stop.
//!
//! The process draws one at each start, writes it to a file that only its own user can read, and removes the file when
//! it is told to stop. Always: it opens no door but the operator's ([`ADMIN_SCOPE`]), counts from this machine alone,
//! and the process itself keeps no more of it than its hash.

use std::{collections::BTreeSet, fmt::Write as _, io, net::IpAddr, sync::Arc, time::Duration};

use http::{HeaderMap, header};

use super::{AuthError, Gate, Identity, Via};
use crate::{Env, durable, ops::ADMIN_SCOPE, shutdown::Shutdown};

/// What every such token begins with, so that nobody takes it for another kind.
pub const OPERATOR_PREFIX: &str = "ron-operator-";

/// The operator's token that the request carries, if that is what it carries.
pub(super) fn presented(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (value, None) = (values.next()?, values.next()) else {
        return None;
    };
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    let ours = scheme.eq_ignore_ascii_case("bearer") && token.starts_with(OPERATOR_PREFIX);
    ours.then_some(token)
}

pub(super) fn identify(
    token: &str,
    peer: Option<IpAddr>,
    expected: Option<&blake3::Hash>,
) -> Result<Identity, AuthError> {
    if !peer.is_some_and(|ip| ip.to_canonical().is_loopback()) {
        return Err(AuthError::UntrustedPeer);
    }
    // Hashes are compared in constant time.
    match expected.is_some_and(|expected| *expected == blake3::hash(token.as_bytes())) {
        true => Ok(Identity {
            subject: "operator".to_owned(),
            tenant: None,
            scopes: BTreeSet::from([ADMIN_SCOPE.to_owned()]),
            via: Via::Operator,
        }),
        false => Err(AuthError::OperatorToken),
    }
}

/// A disk that cannot take the file now is asked again after so long.
const RETRY: Duration = Duration::from_secs(30);
/// What a disk may take to remove it.
const REMOVAL: Duration = Duration::from_millis(500);

/// Draws the token, writes it, and removes it when the process is told to stop.
pub(super) async fn keep(env: Env, gate: Arc<Gate>, path: String, stop: Shutdown) {
    let mut told = false;
    while let Err(error) = issue(&env, &gate, &path).await {
        if !std::mem::replace(&mut told, true) {
            tracing::warn!(%error, path, "the operator's token cannot be written");
        }
        tokio::select! {
            biased;
            _ = stop.wait() => return,
            () = env.sleep(RETRY) => {}
        }
    }
    stop.wait().await;
    gate.operator.store(None);
    let removed = env.disk(move |disk| disk.remove(&path));
    let _ = env.timeout(REMOVAL, removed).await;
}

async fn issue(env: &Env, gate: &Gate, path: &str) -> io::Result<()> {
    let mut secret = [0; 32];
    env.fill_random(&mut secret);
    let mut token = OPERATOR_PREFIX.to_owned();
    for byte in secret {
        let _ = write!(token, "{byte:02x}");
    }
    let hash = blake3::hash(token.as_bytes());
    let path = path.to_owned();
    let written = env.disk(move |disk| {
        durable::replace(&**disk, &path, format!("{token}\n").as_bytes()).map(drop)
    });
    written.await.map_err(io::Error::other)??;
    gate.operator.store(Some(Arc::new(hash)));
    Ok(())
}

#[cfg(test)]
#[path = "operator_tests.rs"]
mod tests;
