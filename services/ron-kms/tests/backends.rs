//! The backends that keep keys in this process: both conform, and neither shows a secret.

mod conformance;
mod support;

use std::sync::Arc;

use conformance::{conforms, held, new_id};
use ron_kms::{
    backend::{
        Backend, BackendError, Info, Material, MemoryBackend, Message, SoftwareBackend,
        rsa_fixtures,
    },
    keys::{
        Algorithm, Secret,
        public::PublicKey,
        sealing::{DataKey, SealingKey},
        signing::{Input, SigningError, SigningKey},
        xwing::XWingKey,
    },
    keystore::{Identity, Kek, KeyStore, Unlock},
};
use support::World;

#[test]
fn software_conforms() {
    let world = World::new();
    let env = world.forgetful();
    let store = KeyStore::memory(&env).unwrap();
    let backend = SoftwareBackend::new(&env, store.kek());
    let expected = Info {
        name: "software",
        algorithms: Algorithm::ALL.to_vec(),
        extractable: true,
    };
    assert_eq!(*backend.info(), expected);
    world.run(conforms(&env, &backend));
}

#[test]
fn memory_conforms() {
    let world = World::new();
    let env = world.forgetful();
    let backend = MemoryBackend::new(&env);
    assert_eq!(backend.info().name, "memory");
    assert_eq!(backend.info().algorithms, Algorithm::ALL);
    world.run(conforms(&env, &backend));
}

#[test]
fn what_one_memory_backend_sealed_another_does_not_open() {
    let world = World::new();
    world.run(async {
        let env = world.forgetful();
        let id = new_id(&env);
        let one = MemoryBackend::new(&env);
        let made = one.generate(&id, Algorithm::Ed25519).await.unwrap();
        let key = held(&id, Algorithm::Ed25519, &made);
        let signed = MemoryBackend::new(&env).sign(&key, &[]).await;
        assert_eq!(signed, Err(BackendError::Damaged(id)));
    });
}

#[test]
fn an_injected_source_makes_the_rsa_keys() {
    let world = World::new();
    world.run(async {
        let env = world.forgetful();
        let refused = Arc::new(|| -> Result<Secret, SigningError> {
            Err(SigningError::Failed(Algorithm::RsaPss3072))
        });
        let backend = MemoryBackend::with_rsa(&env, refused);
        let made = backend.generate(&new_id(&env), Algorithm::RsaPss3072).await;
        let failed = SigningError::Failed(Algorithm::RsaPss3072);
        assert_eq!(made.unwrap_err(), failed.into());
        assert!(rsa_fixtures(&[])().is_err());
        static NO_KEYS: [&[u8]; 1] = [b"no key"];
        assert!(rsa_fixtures(&NO_KEYS)().is_err());
    });
}

/// Keys that are public, for tests alone.
static FIXTURES: [&[u8]; 2] = [
    include_bytes!("data/rsa-3072-test-fixture-1.pk8"),
    include_bytes!("data/rsa-3072-test-fixture-2.pk8"),
];

#[test]
fn fixtures_are_handed_out_in_turn_and_sign() {
    let world = World::new();
    world.run(async {
        let env = world.forgetful();
        let backend = MemoryBackend::with_rsa(&env, rsa_fixtures(&FIXTURES));
        let mut publics = Vec::new();
        for _ in 0..3 {
            let id = new_id(&env);
            let made = backend.generate(&id, Algorithm::RsaPss3072).await.unwrap();
            let key = held(&id, Algorithm::RsaPss3072, &made);
            let message = [Message::Whole(b"m".to_vec())];
            let signed = backend.sign(&key, &message).await.unwrap();
            let public = PublicKey::from_raw(Algorithm::RsaPss3072, &made.public).unwrap();
            assert_eq!(public.verify(Input::Message(b"m"), &signed[0]), Ok(()));
            publics.push(made.public);
        }
        assert_ne!(publics[0], publics[1]);
        assert_eq!(publics[0], publics[2]);
    });
}

/// Every form in which a debug print or a log could show bytes.
fn shows(text: &str, secret: &[u8]) -> bool {
    let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    let list = format!("{secret:?}");
    let list = list.trim_matches(['[', ']']);
    let spread: String = format!("{secret:#?}").split_whitespace().collect();
    let flat: String = text.split_whitespace().collect();
    text.to_lowercase().contains(&hex)
        || text.contains(list)
        || flat.contains(spread.trim_matches(['[', ']', ',']))
}

#[test]
fn no_debug_print_or_error_shows_a_secret() {
    let world = World::new();
    world.run(async {
        let env = world.forgetful();
        let secret = [0xC3; 32];
        let copy = || Secret::copy_of(&secret);
        let id = new_id(&env);
        let backend = MemoryBackend::new(&env);
        let mut texts = Vec::new();
        let mut print = |value: &dyn std::fmt::Debug| {
            texts.push(format!("{value:?} {value:#?}"));
        };
        for algorithm in Algorithm::ALL {
            let made = backend.import(&id, algorithm, copy()).await;
            print(&made);
            if let Ok(made) = made {
                let key = held(&id, algorithm, &made);
                print(&backend.sign(&key, &[Message::Whole(vec![])]).await);
                print(&key);
                print(&key.opened.get());
            }
            print(&SigningKey::from_secret(algorithm, &copy()));
            print(&SealingKey::from_secret(id.clone(), algorithm, &copy()));
        }
        print(&XWingKey::from_secret(id.clone(), &copy()));
        print(&Kek::from_secret(copy()));
        print(&Unlock::Key(copy()));
        print(&Unlock::Passphrase(copy()));
        print(&KeyStore::memory(&env));
        print(&DataKey {
            plain: copy(),
            wrapped: vec![1],
        });
        print(&Identity {
            log_id: [0; 16],
            ed25519_seed: copy(),
            ml_dsa_44_seed: copy(),
            attestation_seed: copy(),
        });
        print(&Material::new(
            id.clone(),
            Algorithm::Ed25519,
            secret.to_vec(),
        ));
        assert!(texts.len() > 40);
        for text in texts {
            assert!(!shows(&text, &secret[..8]), "{text}");
        }
    });
}

#[test]
fn the_search_for_secrets_finds_them_in_every_form() {
    let secret = [0xC3; 8];
    for text in [
        format!("{secret:?}"),
        format!("{secret:#?}"),
        format!("{secret:02x?}").replace(", ", ""),
        "xC3C3C3C3C3C3C3C3".to_owned(),
    ] {
        assert!(shows(&text, &secret), "{text}");
    }
    assert!(!shows("Secret(32 bytes)", &secret));
}
