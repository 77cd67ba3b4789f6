//! What is kept comes back as it was; what must not be kept is not.

use super::*;
use crate::keys::VersionedKid;

fn id(version: u32) -> VersionedKid {
    kid().version(version).unwrap()
}

fn kid() -> Kid {
    Kid::random(&mut |buf: &mut [u8]| buf.fill(1))
}

const NOWHERE: Receipt = Receipt {
    seq: 0,
    index: None,
};

fn again(reply: &Reply) -> Reply {
    let done = Done {
        seq: 5,
        index: 6,
        result: encode(reply).unwrap(),
    };
    decode(&kid(), &done, Some("newest".into())).unwrap()
}

const TOLD: Receipt = Receipt {
    seq: 5,
    index: Some(6),
};

#[test]
fn signatures_come_back_in_their_order_under_their_version() {
    let signature = |algorithm, byte| Signature {
        algorithm,
        bytes: vec![byte; 3],
    };
    let hybrid = vec![
        signature(Algorithm::Ed25519, 1),
        signature(Algorithm::MlDsa65, 2),
    ];
    let all = vec![hybrid, vec![signature(Algorithm::Ed25519, 255)], Vec::new()];
    let reply = Reply::Signed {
        key: id(3),
        algorithm: Algorithm::Ed25519MlDsa65,
        signatures: all.clone(),
        attestation: Some("not kept".into()),
        receipt: NOWHERE,
    };
    let Reply::Signed {
        key,
        algorithm,
        signatures,
        attestation,
        receipt,
    } = again(&reply)
    else {
        panic!("another kind");
    };
    assert_eq!((key, algorithm), (id(3), Algorithm::Ed25519MlDsa65));
    assert_eq!((signatures, receipt), (all, TOLD));
    assert_eq!(attestation.as_deref(), Some("newest"));
}

/// A batch of signatures with the sizes that the standards give them.
fn batch(algorithm: Algorithm, messages: usize) -> Reply {
    let part = |part: &Algorithm| Signature {
        algorithm: *part,
        bytes: vec![255; part.signature_len().unwrap()],
    };
    let each: Vec<Signature> = algorithm.parts().iter().map(part).collect();
    Reply::Signed {
        key: id(u32::MAX),
        algorithm,
        signatures: vec![each; messages],
        attestation: None,
        receipt: NOWHERE,
    }
}

#[test]
fn a_batch_is_refused_exactly_when_its_result_could_not_be_kept() {
    for algorithm in Algorithm::ALL {
        if algorithm.key_use() != crate::keys::Use::Sign {
            continue;
        }
        let most = most_messages(algorithm);
        let kept = |messages| encode(&batch(algorithm, messages)).unwrap().len();
        assert!(kept(most) <= MAX_ATTACHMENT, "{algorithm}: {most}");
        // The frame is told with some room: one message more would nearly fill it.
        assert!(
            kept(most + 1) + FRAME > MAX_ATTACHMENT,
            "{algorithm}: {most}"
        );
    }
}

#[test]
fn wrapped_bytes_come_back_and_a_data_key_only_wrapped() {
    let wrapped = Reply::Wrapped {
        key: id(2),
        blob: vec![0, 255],
        receipt: NOWHERE,
    };
    let Reply::Wrapped { key, blob, receipt } = again(&wrapped) else {
        panic!("another kind");
    };
    assert_eq!((key, blob, receipt), (id(2), vec![0, 255], TOLD));

    let data_key = Reply::DataKey {
        key: id(2),
        plain: Secret::new(b"never kept".to_vec()),
        blob: vec![7],
        receipt: NOWHERE,
    };
    let kept = encode(&data_key).unwrap();
    let hidden = B64.encode(b"never kept");
    let kept = String::from_utf8(kept).unwrap();
    assert!(
        !kept.contains(&hidden) && !kept.contains("never kept"),
        "{kept}"
    );
    let Reply::DataKey {
        plain,
        blob,
        receipt,
        ..
    } = again(&data_key)
    else {
        panic!("another kind");
    };
    assert_eq!((plain.expose(), blob, receipt), (&b""[..], vec![7], TOLD));
}

#[test]
fn what_holds_plain_bytes_or_no_result_is_not_kept() {
    let unwrapped = Reply::Unwrapped {
        key: id(1),
        plain: Secret::new(vec![1]),
        receipt: NOWHERE,
    };
    assert_eq!(encode(&unwrapped), None);
    let changed = Reply::Key {
        kid: kid(),
        version: 1,
        receipt: NOWHERE,
    };
    assert_eq!(encode(&changed), None);
}

#[test]
fn a_kept_result_that_is_damaged_is_an_error_and_no_answer() {
    for result in [
        "",
        "{}",
        "nonsense",
        r#"{"wrapped":{"version":0,"blob":"AA"}}"#,
        r#"{"wrapped":{"version":1,"blob":"*"}}"#,
        r#"{"wrapped":{"version":1,"blob":"AA","more":1}}"#,
        r#"{"signed":{"version":1,"alg":"ed25519","sigs":[[["ed25519","*"]]]}}"#,
        r#"{"data_key":{"version":1,"blob":"="}}"#,
    ] {
        let done = Done {
            seq: 0,
            index: 0,
            result: result.as_bytes().to_vec(),
        };
        assert!(
            matches!(decode(&kid(), &done, None), Err(KmsError::Store(_))),
            "{result}"
        );
    }
}
