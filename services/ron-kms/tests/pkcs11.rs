//! The PKCS#11 backend on real tokens of SoftHSM2: it conforms for what the token offers, it comes back
//! after failures, and it guards the PIN.
//!
//! The module reads its configuration from the environment, once per process: each case runs in a child
//! process with a token directory of its own.
#![allow(
    clippy::disallowed_methods,
    reason = "it plays the operator of a token"
)]

mod conformance;
mod support;

use std::sync::Arc;

use conformance::{conforms, held, new_id};
use cryptoki::{
    context::Pkcs11,
    object::{Attribute, AttributeType, ObjectClass},
    session::UserType,
};
use libtest_mimic::{Arguments, Trial};
use ron_core::Env;
use ron_kms::{
    backend::{Backend, BackendError, Material, Message, Pkcs11Backend, Pkcs11Config, TokenName},
    keys::{Algorithm, Secret},
};
use support::{
    World,
    token::{MODULE, PIN, config, in_child},
};

type Body = fn(&World, &Env);

const CASES: &[(&str, Body)] = &[
    ("softhsm_conforms_for_what_it_offers", conforms_for_its_list),
    (
        "keys_are_token_objects_that_cannot_be_taken_out",
        cannot_be_taken_out,
    ),
    (
        "keys_are_there_after_a_restart_of_the_module",
        survives_finalize,
    ),
    (
        "a_lost_login_is_unavailable_until_checked",
        recovers_from_logout,
    ),
    (
        "a_token_that_was_taken_away_is_found_again_once_it_is_back",
        recovers_from_absence,
    ),
    ("a_wrong_pin_is_tried_once_and_never_told", wrong_pin),
    ("a_missing_token_or_module_is_unavailable", missing),
    ("many_calls_share_few_sessions", many_calls),
];

fn main() {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some("--child") {
        let name = arguments.next().unwrap_or_default();
        let case = CASES.iter().find(|(own, _)| *own == name);
        let (_, body) = case.expect("a case of this name");
        let world = World::new();
        let env = world.forgetful();
        return body(&world, &env);
    }
    let trials = CASES
        .iter()
        .map(|(name, _)| Trial::test(*name, move || Ok(in_child(&["--child", name])?)));
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit();
}

fn connect(world: &World, env: &Env, sessions: usize) -> Pkcs11Backend {
    world
        .run(Pkcs11Backend::connect(env, config(PIN, sessions)))
        .unwrap()
}

fn new_key(world: &World, env: &Env, backend: &Pkcs11Backend, algorithm: Algorithm) -> Material {
    let id = new_id(env);
    let made = world.run(backend.generate(&id, algorithm)).unwrap();
    held(&id, algorithm, &made)
}

fn signs(world: &World, backend: &Pkcs11Backend, key: &Material) -> Result<(), BackendError> {
    let message = [Message::Whole(b"m".to_vec())];
    world.run(backend.sign(key, &message)).map(|_| ())
}

fn is_unavailable<T: std::fmt::Debug>(answer: &Result<T, BackendError>) -> bool {
    matches!(answer, Err(BackendError::Unavailable(_)))
}

fn conforms_for_its_list(world: &World, env: &Env) {
    let backend = connect(world, env, 2);
    assert_eq!(backend.info().name, "pkcs11");
    assert!(!backend.info().extractable);
    assert_eq!(
        backend.info().algorithms,
        [
            Algorithm::Ed25519,
            Algorithm::EcdsaP256,
            Algorithm::EcdsaP384,
            Algorithm::RsaPss3072,
            Algorithm::Aes256Gcm,
        ]
    );
    world.run(conforms(env, &backend));
}

fn cannot_be_taken_out(world: &World, env: &Env) {
    let backend = connect(world, env, 1);
    let id = new_id(env);
    let seed = Secret::copy_of(&[7; 32]);
    let imported = world.run(backend.import(&id, Algorithm::Ed25519, seed));
    imported.unwrap();
    let mut made = 1;
    for algorithm in backend.info().algorithms.clone() {
        new_key(world, env, &backend, algorithm);
        made += 1;
    }
    let module = Pkcs11::new(MODULE).unwrap();
    let slot = module.get_slots_with_initialized_token().unwrap()[0];
    let session = module.open_rw_session(slot).unwrap();
    let objects = session.find_objects(&[Attribute::Token(true)]).unwrap();
    assert_eq!(objects.len(), made, "no public half is left behind");
    for object in objects {
        let wanted = [
            AttributeType::Sensitive,
            AttributeType::Extractable,
            AttributeType::Private,
            AttributeType::Class,
        ];
        let got = session.get_attributes(object, &wanted).unwrap();
        assert_eq!(
            got[..3],
            [
                Attribute::Sensitive(true),
                Attribute::Extractable(false),
                Attribute::Private(true)
            ]
        );
        assert_ne!(got[3], Attribute::Class(ObjectClass::PUBLIC_KEY));
        let value = session.get_attributes(object, &[AttributeType::Value]);
        assert!(value.unwrap_or_default().is_empty());
    }
}

/// The module is shut down under the backend, as a driver that is restarted.
fn survives_finalize(world: &World, env: &Env) {
    let backend = connect(world, env, 2);
    let keys = [Algorithm::EcdsaP256, Algorithm::Ed25519]
        .map(|algorithm| new_key(world, env, &backend, algorithm));
    for key in &keys {
        signs(world, &backend, key).unwrap();
    }
    Pkcs11::new(MODULE).unwrap().finalize().unwrap();
    let down = signs(world, &backend, &keys[0]);
    assert!(is_unavailable(&down), "{down:?}");
    let still = signs(world, &backend, &keys[0]);
    assert!(
        is_unavailable(&still),
        "nothing is tried until a check: {still:?}"
    );
    world.run(backend.check()).unwrap();
    for key in &keys {
        signs(world, &backend, key).unwrap();
    }
}

fn recovers_from_logout(world: &World, env: &Env) {
    let backend = connect(world, env, 1);
    let known = new_key(world, env, &backend, Algorithm::EcdsaP256);
    let unknown = new_key(world, env, &backend, Algorithm::EcdsaP256);
    signs(world, &backend, &known).unwrap();
    let module = Pkcs11::new(MODULE).unwrap();
    let slot = module.get_slots_with_initialized_token().unwrap()[0];
    for key in [&known, &unknown] {
        let session = module.open_rw_session(slot).unwrap();
        session.logout().unwrap();
        drop(session);
        let down = signs(world, &backend, key);
        assert!(is_unavailable(&down), "{down:?}");
        world.run(backend.check()).unwrap();
        signs(world, &backend, key).unwrap();
    }
    // A check notices it by itself.
    let session = module.open_rw_session(slot).unwrap();
    session.logout().unwrap();
    world.run(backend.check()).unwrap();
    signs(world, &backend, &known).unwrap();
}

fn recovers_from_absence(world: &World, env: &Env) {
    let backend = connect(world, env, 2);
    let key = new_key(world, env, &backend, Algorithm::EcdsaP256);
    let conf = std::path::PathBuf::from(std::env::var("SOFTHSM2_CONF").unwrap());
    let (there, away) = (
        conf.with_file_name("tokens"),
        conf.with_file_name("taken away"),
    );
    for _ in 0..2 {
        signs(world, &backend, &key).unwrap();
        std::fs::rename(&there, &away).unwrap();
        // The module may answer from memory for a while; a check does not.
        while signs(world, &backend, &key).is_ok() {
            if world.run(backend.check()).is_err() {
                break;
            }
            let module = Pkcs11::new(MODULE).unwrap();
            let slot = module.get_slots_with_initialized_token().unwrap()[0];
            module.open_rw_session(slot).unwrap().logout().unwrap();
        }
        assert!(world.run(backend.check()).is_err(), "it is not there");
        std::fs::rename(&away, &there).unwrap();
        world.run(backend.check()).unwrap();
        signs(world, &backend, &key).unwrap();
    }
}

fn wrong_pin(world: &World, env: &Env) {
    let wrong = "13579135";
    let refused = world.run(Pkcs11Backend::connect(env, config(wrong, 1)));
    let refused = refused.map(|_| ()).unwrap_err();
    assert_eq!(
        refused,
        BackendError::Unavailable("Login answers PinIncorrect".to_owned())
    );
    for text in [
        refused.to_string(),
        format!("{refused:?}"),
        format!("{:?}", config(wrong, 1)),
    ] {
        assert!(!text.contains(wrong), "{text}");
    }

    // The PIN is changed while the backend runs: it tries its own once and leaves the token alone.
    let backend = connect(world, env, 1);
    let module = Pkcs11::new(MODULE).unwrap();
    let slot = module.get_slots_with_initialized_token().unwrap()[0];
    let session = module.open_rw_session(slot).unwrap();
    let pins = [PIN, "24682468"].map(|pin| cryptoki::types::AuthPin::new(pin.into()));
    session.set_pin(&pins[0], &pins[1]).unwrap();
    session.logout().unwrap();
    let answers: Vec<_> = (0..3)
        .map(|_| world.run(backend.check()).unwrap_err().to_string())
        .collect();
    assert!(
        answers[0].ends_with("Login answers PinIncorrect"),
        "{answers:?}"
    );
    for later in &answers[1..] {
        assert!(later.ends_with("it is not tried again"), "{later}");
        assert!(!later.contains(PIN));
    }
    session.login(UserType::User, Some(&pins[1])).unwrap();
}

fn missing(world: &World, env: &Env) {
    for (config, said) in [
        (
            Pkcs11Config {
                module: "/nowhere/module.so".into(),
                ..config(PIN, 1)
            },
            "is no PKCS#11 module",
        ),
        (
            Pkcs11Config {
                token: TokenName::Label("another".to_owned()),
                ..config(PIN, 1)
            },
            "there is no token with the label \"another\"",
        ),
        (
            Pkcs11Config {
                token: TokenName::Slot(77),
                ..config(PIN, 1)
            },
            "there is no token in slot 77",
        ),
    ] {
        let refused = world.run(Pkcs11Backend::connect(env, config));
        let refused = refused.map(|_| ()).unwrap_err();
        assert!(is_unavailable(&Err::<(), _>(refused.clone())));
        assert!(refused.to_string().contains(said), "{refused}");
    }
}

fn many_calls(world: &World, env: &Env) {
    let backend = Arc::new(connect(world, env, 2));
    let key = Arc::new(new_key(world, env, &backend, Algorithm::EcdsaP256));
    // All are under way before the first is waited for.
    let mut calls = Vec::new();
    for _ in 0..24 {
        let (backend, key) = (backend.clone(), key.clone());
        calls.push(env.spawn("call", async move {
            let message = [Message::Whole(b"m".to_vec())];
            backend.sign(&key, &message).await.map(|_| ())
        }));
    }
    for call in calls {
        assert_eq!(world.run(call).unwrap(), Ok(()));
    }
    let module = Pkcs11::new(MODULE).unwrap();
    let slot = module.get_slots_with_initialized_token().unwrap()[0];
    let open = module.get_token_info(slot).unwrap().session_count();
    assert!(open.is_none_or(|count| count <= 2), "{open:?}");
}
