//! The handshake of the DHT: whatever is said in place of a frame, nobody is named who did not sign.

use std::sync::LazyLock;

use svc_dht::{
    identity::{Identity, NetworkId},
    wire::handshake::{Accepter, Dialler},
};

const NETWORK: NetworkId = NetworkId([0; 16]);

static DIALS: LazyLock<Identity> = LazyLock::new(|| Identity::from_seed(&[1; 32]));
static ACCEPTS: LazyLock<Identity> = LazyLock::new(|| Identity::from_seed(&[2; 32]));

pub fn run(frame: &[u8]) {
    let (dialler, hello) = Dialler::new(&DIALS, NETWORK, 1, [3; 32]);
    let welcomed = dialler.handle_welcome(frame, Some(ACCEPTS.id()));
    assert!(welcomed.is_err() || welcomed.is_ok_and(|welcomed| welcomed.check(&DIALS).is_err()));

    let accepter = Accepter::handle_hello(&hello, &ACCEPTS, NETWORK, [4; 32]).expect("ours");
    let proof = accepter.handle_proof(frame);
    assert!(proof.is_err() || proof.is_ok_and(|proof| proof.check().is_err()));

    match Accepter::handle_hello(frame, &ACCEPTS, NETWORK, [4; 32]) {
        // Anybody may claim anything; without a Proof it is nothing but that.
        Ok(accepter) => assert_ne!(accepter.claimed().0, ACCEPTS.id()),
        Err(error) => assert!(error.reject().is_none_or(|reject| reject.len() == 3)),
    }
}
