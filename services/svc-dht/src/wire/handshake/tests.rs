//! Who comes to the end of a handshake, and that nobody else does.

use proptest::prelude::*;

use super::*;

const PORT: u16 = 4100;

fn node(seed: u8) -> Identity {
    Identity::from_seed(&[seed; 32])
}

fn net() -> NetworkId {
    NetworkId::of_name("ron")
}

/// A whole handshake between two nodes; what each end knows then.
fn shake(
    (dials, its_net): (&Identity, NetworkId),
    (accepts, that_net): (&Identity, NetworkId),
    expected: Option<Id>,
) -> Result<(PeerKey, PeerKey), HandshakeError> {
    let (dialler, hello) = Dialler::new(dials, its_net, PORT, [1; 32]);
    let accepter = Accepter::handle_hello(&hello, accepts, that_net, [2; 32])?;
    let welcomed = dialler.handle_welcome(&accepter.welcome(accepts), expected)?;
    let (peer, proof) = welcomed.check(dials)?;
    Ok((peer, accepter.handle_proof(&proof)?.check()?))
}

#[test]
fn both_ends_learn_who_is_there() {
    let (a, b) = (node(1), node(2));
    let (seen_by_a, seen_by_b) = shake((&a, net()), (&b, net()), Some(b.id())).unwrap();
    assert_eq!((seen_by_a.id, seen_by_a.public), (b.id(), *b.public()));
    assert_eq!((seen_by_b.id, seen_by_b.public), (a.id(), *a.public()));
    assert!(shake((&a, net()), (&b, net()), None).is_ok());

    let (_, hello) = Dialler::new(&a, net(), PORT, [1; 32]);
    let accepter = Accepter::handle_hello(&hello, &b, net(), [2; 32]).unwrap();
    assert_eq!(accepter.claimed(), (a.id(), PORT));
}

#[test]
fn two_networks_never_complete_a_handshake() {
    let (a, b) = (node(1), node(2));
    let other = NetworkId::of_name("another");
    let refused = shake((&a, net()), (&b, other), None);
    assert_eq!(refused, Err(HandshakeError::WrongNetwork));
    // Whatever end lies about its network: what it signs is then of no use to the other.
    let (dialler, _) = Dialler::new(&a, net(), PORT, [1; 32]);
    let (_, hello) = Dialler::new(&a, other, PORT, [1; 32]);
    let accepter = Accepter::handle_hello(&hello, &b, other, [2; 32]).unwrap();
    let mut welcome = accepter.welcome(&b);
    let refused = dialler.clone().handle_welcome(&welcome, None);
    assert_eq!(refused.unwrap_err(), HandshakeError::WrongNetwork);
    welcome[4..20].copy_from_slice(&net().0);
    let welcomed = dialler.handle_welcome(&welcome, None).unwrap();
    assert_eq!(welcomed.check(&a).unwrap_err(), HandshakeError::BadProof);
}

#[test]
fn who_was_not_wanted_is_turned_away() {
    let refused = shake((&node(1), net()), (&node(2), net()), Some(node(3).id()));
    assert_eq!(refused, Err(HandshakeError::WrongId));
}

#[test]
fn a_node_does_not_shake_hands_with_itself() {
    let me = node(1);
    let refused = shake((&me, net()), (&me, net()), None);
    assert_eq!(refused, Err(HandshakeError::SelfDial));
    // Its own Welcome, sent back to it by somebody.
    let (_, hello) = Dialler::new(&node(2), net(), PORT, [1; 32]);
    let accepter = Accepter::handle_hello(&hello, &me, net(), [2; 32]).unwrap();
    let (dialler, _) = Dialler::new(&me, net(), PORT, [1; 32]);
    let refused = dialler.handle_welcome(&accepter.welcome(&me), None);
    assert_eq!(refused.unwrap_err(), HandshakeError::SelfDial);
}

#[test]
fn a_replayed_welcome_proves_nothing_for_another_nonce() {
    let (a, b) = (node(1), node(2));
    let (_, hello) = Dialler::new(&a, net(), PORT, [1; 32]);
    let accepter = Accepter::handle_hello(&hello, &b, net(), [2; 32]).unwrap();
    let heard = accepter.welcome(&b);
    let (dialler, _) = Dialler::new(&a, net(), PORT, [9; 32]);
    let welcomed = dialler.handle_welcome(&heard, Some(b.id())).unwrap();
    assert_eq!(welcomed.check(&a).unwrap_err(), HandshakeError::BadProof);
}

#[test]
fn a_replayed_proof_proves_nothing_for_another_nonce_or_port() {
    let (a, b) = (node(1), node(2));
    let (dialler, hello) = Dialler::new(&a, net(), PORT, [1; 32]);
    let accepter = Accepter::handle_hello(&hello, &b, net(), [2; 32]).unwrap();
    let welcomed = dialler.handle_welcome(&accepter.welcome(&b), None).unwrap();
    let (_, heard) = welcomed.check(&a).unwrap();

    let again = Accepter::handle_hello(&hello, &b, net(), [3; 32]).unwrap();
    let refused = again.handle_proof(&heard).unwrap().check();
    assert_eq!(refused, Err(HandshakeError::BadProof));

    let (_, elsewhere) = Dialler::new(&a, net(), PORT + 1, [1; 32]);
    let again = Accepter::handle_hello(&elsewhere, &b, net(), [2; 32]).unwrap();
    let refused = again.handle_proof(&heard).unwrap().check();
    assert_eq!(refused, Err(HandshakeError::BadProof));
    assert!(accepter.handle_proof(&heard).unwrap().check().is_ok());
}

#[test]
fn nobody_is_taken_for_the_holder_of_another_key() {
    let (victim, b, mallory) = (node(1), node(2), node(9));
    // Mallory dials with the victim's key, and signs with its own.
    let (dialler, hello) = Dialler::new(&victim, net(), PORT, [1; 32]);
    let accepter = Accepter::handle_hello(&hello, &b, net(), [2; 32]).unwrap();
    let welcomed = dialler.handle_welcome(&accepter.welcome(&b), None).unwrap();
    let (_, proof) = welcomed.check(&mallory).unwrap();
    let refused = accepter.handle_proof(&proof).unwrap().check();
    assert_eq!(refused, Err(HandshakeError::BadProof));
    // Mallory accepts with the victim's key, and signs with its own.
    let (dialler, hello) = Dialler::new(&b, net(), PORT, [1; 32]);
    let accepter = Accepter::handle_hello(&hello, &victim, net(), [2; 32]).unwrap();
    let welcome = accepter.welcome(&mallory);
    let welcomed = dialler.handle_welcome(&welcome, Some(victim.id())).unwrap();
    assert_eq!(welcomed.check(&b).unwrap_err(), HandshakeError::BadProof);
}

#[test]
fn a_go_between_can_pass_messages_on_but_not_make_them_its_own() {
    // Mallory passes b's Welcome, made for a's nonce and key, to a under Mallory's own key.
    let (a, b, mallory) = (node(1), node(2), node(9));
    let (dialler, hello) = Dialler::new(&a, net(), PORT, [1; 32]);
    let accepter = Accepter::handle_hello(&hello, &b, net(), [2; 32]).unwrap();
    let mut welcome = accepter.welcome(&b);
    welcome[22..54].copy_from_slice(mallory.public());
    let welcomed = dialler.handle_welcome(&welcome, None).unwrap();
    assert_eq!(welcomed.claimed(), mallory.id());
    assert_eq!(welcomed.check(&a).unwrap_err(), HandshakeError::BadProof);
}

#[test]
fn a_welcome_is_no_proof_and_a_proof_no_welcome() {
    // Both ends dial each other at once with the same nonces: what one signed as Welcome is not taken as Proof.
    let (a, b) = (node(1), node(2));
    let (_, hello) = Dialler::new(&a, net(), PORT, [1; 32]);
    let accepter = Accepter::handle_hello(&hello, &b, net(), [2; 32]).unwrap();
    let welcome = accepter.welcome(&b);
    let mut proof = vec![0x82, 3, 0x58, 64];
    proof.extend(&welcome[welcome.len() - 64..]);
    let refused = accepter.handle_proof(&proof).unwrap().check();
    assert_eq!(refused, Err(HandshakeError::BadProof));
}

#[test]
fn another_version_is_told_so_even_if_the_rest_is_unknown() {
    let (_, mut hello) = Dialler::new(&node(1), net(), PORT, [1; 32]);
    hello[2] = 2;
    for newer in [
        &hello[..],
        &[0x83, 1, 2, 0x60],
        &[0x89, 1, 2, 0, 0, 0, 0, 0, 0, 0],
    ] {
        let refused = Accepter::handle_hello(newer, &node(2), net(), [2; 32]);
        assert_eq!(refused.unwrap_err(), HandshakeError::WrongVersion);
    }
}

#[test]
fn the_other_end_is_told_why_it_is_rejected() {
    for code in RejectCode::ALL {
        let (dialler, _) = Dialler::new(&node(1), net(), PORT, [1; 32]);
        let error = dialler.handle_welcome(&code.frame(), None).unwrap_err();
        assert_eq!(error, HandshakeError::Rejected(code));
        assert!(error.code().starts_with("rejected_"));
        assert_eq!(error.reject(), None, "a rejection is not answered");
    }
    for (error, code) in [
        (HandshakeError::WrongNetwork, Some(RejectCode::WrongNetwork)),
        (HandshakeError::WrongVersion, Some(RejectCode::WrongVersion)),
        (HandshakeError::SelfDial, Some(RejectCode::SelfDial)),
        (HandshakeError::BadProof, None),
        (HandshakeError::Malformed, None),
    ] {
        assert_eq!(error.reject(), code.map(RejectCode::frame));
    }
    let (dialler, _) = Dialler::new(&node(1), net(), PORT, [1; 32]);
    let unknown = dialler.handle_welcome(&[0x82, 4, 17], None).unwrap_err();
    assert_eq!(unknown, HandshakeError::Malformed);
}

/// The three frames of a good handshake.
fn frames() -> [Vec<u8>; 3] {
    let (a, b) = (node(1), node(2));
    let (dialler, hello) = Dialler::new(&a, net(), PORT, [1; 32]);
    let accepter = Accepter::handle_hello(&hello, &b, net(), [2; 32]).unwrap();
    let welcome = accepter.welcome(&b);
    let welcomed = dialler.handle_welcome(&welcome, None).unwrap();
    let (_, proof) = welcomed.check(&a).unwrap();
    [hello, welcome, proof]
}

/// What a handshake comes to whose frames are these, as far as `at`, and the others good.
fn replay(at: usize, frame: &[u8]) -> Result<PeerKey, HandshakeError> {
    let (a, b) = (node(1), node(2));
    let (dialler, hello) = Dialler::new(&a, net(), PORT, [1; 32]);
    let hello = if at == 0 { frame } else { &hello };
    let accepter = Accepter::handle_hello(hello, &b, net(), [2; 32])?;
    let welcome = accepter.welcome(&b);
    let welcome = if at == 1 { frame } else { &welcome };
    let (_, proof) = dialler.handle_welcome(welcome, Some(b.id()))?.check(&a)?;
    let proof = if at == 2 { frame } else { &proof };
    accepter.handle_proof(proof)?.check()
}

#[test]
fn a_cut_frame_of_the_handshake_is_refused() {
    for (at, frame) in frames().iter().enumerate() {
        assert!(replay(at, frame).is_ok());
        for cut in 0..frame.len() {
            let refused = replay(at, &frame[..cut]);
            assert_eq!(
                refused,
                Err(HandshakeError::Malformed),
                "frame {at} cut at {cut}"
            );
        }
        let longer = [&frame[..], &[0]].concat();
        assert_eq!(replay(at, &longer), Err(HandshakeError::Malformed));
    }
}

#[test]
fn no_frame_of_the_handshake_is_an_envelope() {
    for frame in frames()
        .iter()
        .chain(&RejectCode::ALL.map(RejectCode::frame))
    {
        assert!(!crate::wire::envelope::is_envelope(frame));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_flipped_bit_in_any_frame_ends_the_handshake(at in 0..3_usize, bit in any::<proptest::sample::Index>()) {
        let mut frame = frames()[at].clone();
        let bit = bit.index(frame.len() * 8);
        frame[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(replay(at, &frame).is_err());
    }

    #[test]
    fn garbage_is_refused(at in 0..3_usize, frame in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(replay(at, &frame).is_err());
    }
}
