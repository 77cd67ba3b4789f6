//! What every backend must do, for the algorithms it lists: one body of tests for all of them.
#![allow(dead_code, reason = "each test uses its part of it")]

use ron_core::Env;
use ron_kms::{
    backend::{Backend, BackendError, Made, Material, Message},
    keys::{
        Algorithm, Kid, Secret, Use, VersionedKid,
        algorithm::Prehash,
        nonce::{Nonce, NonceTracker},
        public::PublicKey,
        sealing::{SealingError, SealingKey},
        signing::{Input, Signature, SigningError, SigningKey},
        xwing::XWingKey,
    },
};

/// Runs everything; panics where the backend is wrong.
pub async fn conforms(env: &Env, backend: &dyn Backend) {
    let all = Suite { env, backend };
    backend.check().await.unwrap();
    for algorithm in Algorithm::ALL {
        if !backend.info().algorithms.contains(&algorithm) {
            all.refuses(algorithm).await;
            continue;
        }
        match algorithm.key_use() {
            Use::Sign => all.signs(algorithm).await,
            Use::Wrap => all.wraps(algorithm).await,
        }
        all.imports(algorithm).await;
        all.takes_nothing_for_something_else(algorithm).await;
    }
    backend.check().await.unwrap();
}

pub fn new_id(env: &Env) -> VersionedKid {
    let kid = Kid::random(&mut |buf: &mut [u8]| env.fill_random(buf));
    kid.version(1).unwrap()
}

pub fn held(id: &VersionedKid, algorithm: Algorithm, made: &Made) -> Material {
    Material::new(id.clone(), algorithm, made.sealed.clone())
}

/// Nonces in order, from a tracker whose range counts as durable.
pub fn nonces() -> impl FnMut() -> Nonce {
    let mut tracker = NonceTracker::open(0, 0);
    let mark = tracker.reserve(1000).unwrap();
    tracker.reserved(mark).unwrap();
    move || tracker.take().unwrap()
}

struct Suite<'a> {
    env: &'a Env,
    backend: &'a dyn Backend,
}

impl Suite<'_> {
    async fn refuses(&self, algorithm: Algorithm) {
        let id = new_id(self.env);
        let unsupported = BackendError::Unsupported(algorithm);
        let made = self.backend.generate(&id, algorithm).await;
        assert_eq!(made.unwrap_err(), unsupported);
        let secret = Secret::copy_of(&[7; 32]);
        let made = self.backend.import(&id, algorithm, secret).await;
        assert_eq!(made.unwrap_err(), unsupported);
    }

    async fn make(&self, algorithm: Algorithm) -> (Material, Made) {
        let id = new_id(self.env);
        let made = self.backend.generate(&id, algorithm).await;
        let made = made.unwrap_or_else(|error| panic!("{algorithm}: {error}"));
        (held(&id, algorithm, &made), made)
    }

    async fn signs(&self, algorithm: Algorithm) {
        let (key, made) = self.make(algorithm).await;
        let public = PublicKey::from_raw(algorithm, &made.public).unwrap();
        let (_, other) = self.make(algorithm).await;
        assert_ne!(made.public, other.public, "{algorithm}");

        let texts = [&b""[..], b"a", &[7; 100_000]];
        let batch = texts.map(|text| Message::Whole(text.to_vec()));
        // The first use opens the key, later ones find it open, another process opens it again.
        let again = held(&key.id, algorithm, &made);
        for key in [&key, &key, &again] {
            let signed = self.backend.sign(key, &batch).await.unwrap();
            assert_eq!(signed.len(), texts.len());
            for (text, signatures) in texts.iter().zip(&signed) {
                let verified = public.verify(Input::Message(text), signatures);
                assert_eq!(verified, Ok(()), "{algorithm}");
                let changed = [*text, b"!"].concat();
                let verified = public.verify(Input::Message(&changed), signatures);
                assert!(verified.is_err(), "{algorithm}");
            }
        }
        assert_eq!(
            self.backend.sign(&key, &[]).await.unwrap(),
            Vec::<Vec<Signature>>::new()
        );
        self.signs_hashes(algorithm, &key, &public).await;

        let secret = Secret::copy_of(b"s");
        let refused = self.backend.wrap(&key, None, &secret, b"");
        let not_for = BackendError::from(SealingError::NotForWrapping(algorithm));
        assert_eq!(refused.await, Err(not_for.clone()));
        assert_eq!(self.backend.unwrap(&key, b"blob", b"").await, Err(not_for));
        self.forgets(&key, &made).await;
    }

    async fn signs_hashes(&self, algorithm: Algorithm, key: &Material, public: &PublicKey) {
        use aws_lc_rs::digest::{SHA256, SHA384, digest};
        let message = b"the message";
        for (hash, bytes) in [
            (Prehash::Sha256, digest(&SHA256, message)),
            (Prehash::Sha384, digest(&SHA384, message)),
        ] {
            let input = |len: usize| Message::Prehashed {
                hash,
                digest: bytes.as_ref()[..len].to_vec(),
            };
            let signed = self.backend.sign(key, &[input(hash.digest_len())]).await;
            match algorithm.prehash() {
                Some(wanted) if wanted == hash => {
                    let signed = signed.unwrap();
                    let verified = public.verify(Input::Message(message), &signed[0]);
                    assert_eq!(verified, Ok(()), "{algorithm}");
                    let short = self.backend.sign(key, &[input(31)]).await;
                    let wrong = SigningError::WrongPrehash { algorithm, wanted };
                    assert_eq!(short, Err(wrong.into()));
                }
                Some(wanted) => {
                    let wrong = SigningError::WrongPrehash { algorithm, wanted };
                    assert_eq!(signed, Err(wrong.into()));
                }
                None => {
                    let refused = SigningError::PrehashRefused(algorithm);
                    assert_eq!(signed, Err(refused.into()));
                }
            }
        }
    }

    async fn wraps(&self, algorithm: Algorithm) {
        let (key, made) = self.make(algorithm).await;
        assert_eq!(made.public.len(), algorithm.public_len().unwrap_or(0));
        let (backend, mut nonces) = (self.backend, nonces());
        let mut nonce = || algorithm.needs_nonce().then(&mut nonces);
        let secret = Secret::copy_of(b"a data key, or so");
        let wrap = backend.wrap(&key, nonce(), &secret, b"context");
        let blob = wrap.await.unwrap();
        let again = held(&key.id, algorithm, &made);
        for key in [&key, &again] {
            let opened = backend.unwrap(key, &blob, b"context").await;
            assert_eq!(opened.as_ref(), Ok(&secret), "{algorithm}");
        }
        let does_not_open = Err(BackendError::from(SealingError::DoesNotOpen));
        let (other, _) = self.make(algorithm).await;
        assert_eq!(
            backend.unwrap(&other, &blob, b"context").await,
            does_not_open
        );
        for context in [&b""[..], b"contex", b"context "] {
            assert_eq!(backend.unwrap(&key, &blob, context).await, does_not_open);
        }
        let mut flipped = blob.clone();
        *flipped.last_mut().unwrap() ^= 1;
        assert_eq!(
            backend.unwrap(&key, &flipped, b"context").await,
            does_not_open
        );
        for cut in [0, 1, 2, 13, 29] {
            let cut = backend.unwrap(&key, &blob[..cut], b"context").await;
            let truncated = |error: &BackendError| {
                matches!(error, BackendError::Sealing(SealingError::Truncated { .. }))
            };
            assert!(cut.as_ref().is_err_and(truncated), "{cut:?}");
        }
        // It still works after all of this.
        assert!(backend.unwrap(&key, &blob, b"context").await.is_ok());

        let too_long = Err(BackendError::from(SealingError::TooLong));
        let long = Secret::copy_of(&vec![0; 64 * 1024 + 1]);
        assert_eq!(backend.wrap(&key, nonce(), &long, b"").await, too_long);
        let most = Secret::copy_of(&vec![5; 64 * 1024]);
        let blob = backend.wrap(&key, nonce(), &most, b"").await.unwrap();
        assert_eq!(backend.unwrap(&key, &blob, b"").await.unwrap(), most);
        if algorithm.needs_nonce() {
            let failed = backend.wrap(&key, None, &secret, b"").await;
            assert_eq!(failed, Err(SealingError::Failed(algorithm).into()));
        }

        let refused = backend.sign(&key, &[Message::Whole(vec![1])]).await;
        assert_eq!(refused, Err(SigningError::NotForSigning(algorithm).into()));
        self.forgets(&key, &made).await;
    }

    /// A secret of ours, used by the backend, agrees with the same secret used right here.
    async fn imports(&self, algorithm: Algorithm) {
        let fill = &mut |buf: &mut [u8]| self.env.fill_random(buf);
        let id = new_id(self.env);
        let secret = match (algorithm, algorithm.key_use()) {
            (Algorithm::RsaPss3072, _) => SigningKey::generate_rsa().unwrap(),
            (Algorithm::XWing, _) => XWingKey::generate(fill),
            (_, Use::Sign) => SigningKey::generate(algorithm, fill).unwrap(),
            (_, Use::Wrap) => SealingKey::generate(algorithm, fill).unwrap(),
        };
        let copy = Secret::copy_of(secret.expose());
        let made = self.backend.import(&id, algorithm, copy).await.unwrap();
        let key = held(&id, algorithm, &made);
        match algorithm.key_use() {
            Use::Sign => {
                let public = SigningKey::from_secret(algorithm, &secret).unwrap();
                let public = public.public();
                assert_eq!(public.raw(), made.public, "{algorithm}");
                let message = [Message::Whole(b"imported".to_vec())];
                let signed = self.backend.sign(&key, &message).await.unwrap();
                let verified = public.verify(Input::Message(b"imported"), &signed[0]);
                assert_eq!(verified, Ok(()), "{algorithm}");
            }
            Use::Wrap if algorithm.needs_nonce() => {
                let here = SealingKey::from_secret(id.clone(), algorithm, &secret).unwrap();
                let (plain, mut nonce) = (Secret::copy_of(b"plain"), nonces());
                let theirs = self.backend.wrap(&key, Some(nonce()), &plain, b"c");
                assert_eq!(here.unwrap(&theirs.await.unwrap(), b"c").unwrap(), plain);
                let ours = here.wrap(nonce(), b"plain", b"c").unwrap();
                let opened = self.backend.unwrap(&key, &ours, b"c").await;
                assert_eq!(opened.unwrap(), plain);
            }
            Use::Wrap => {
                let here = XWingKey::from_secret(id.clone(), &secret).unwrap();
                assert_eq!(here.public().raw(), made.public);
                let ours = here.wrap(b"plain", b"c", fill).unwrap();
                let opened = self.backend.unwrap(&key, &ours, b"c").await;
                assert_eq!(opened.unwrap().expose(), b"plain");
            }
        }
        for bad in [&b""[..], b"short", &[0xFF; 200]] {
            let made = self.backend.import(&id, algorithm, Secret::copy_of(bad));
            let refused = made.await.unwrap_err();
            let expected = match algorithm.key_use() {
                Use::Sign => BackendError::from(SigningError::BadSecret(algorithm)),
                Use::Wrap => BackendError::from(SealingError::BadSecret(algorithm)),
            };
            assert_eq!(refused, expected);
        }
    }

    /// What is stored belongs to one version, and damage is told as such.
    async fn takes_nothing_for_something_else(&self, algorithm: Algorithm) {
        let (key, made) = self.make(algorithm).await;
        let moved = key.id.kid().version(2).unwrap();
        let cut = made.sealed[..made.sealed.len() - 1].to_vec();
        for wrong in [
            Material::new(moved, algorithm, made.sealed.clone()),
            Material::new(key.id.clone(), algorithm, cut),
            Material::new(key.id.clone(), algorithm, Vec::new()),
            Material::new(key.id.clone(), algorithm, b"nothing known".to_vec()),
        ] {
            let damaged = BackendError::Damaged(wrong.id.clone());
            assert_eq!(self.used(&wrong).await, Err(damaged), "{wrong:?}");
        }
        assert_eq!(self.used(&key).await, Ok(()));
    }

    async fn used(&self, key: &Material) -> Result<(), BackendError> {
        match key.algorithm.key_use() {
            Use::Sign => {
                let message = [Message::Whole(b"m".to_vec())];
                self.backend.sign(key, &message).await.map(|_| ())
            }
            Use::Wrap => {
                let nonce = key.algorithm.needs_nonce().then(nonces());
                let plain = Secret::copy_of(b"p");
                self.backend.wrap(key, nonce, &plain, b"").await.map(|_| ())
            }
        }
    }

    /// Destroying twice is no error. Who keeps the secret elsewhere has it no more.
    async fn forgets(&self, key: &Material, made: &Made) {
        self.backend.destroy(key).await.unwrap();
        self.backend.destroy(key).await.unwrap();
        if !self.backend.info().extractable {
            let again = held(&key.id, key.algorithm, made);
            let gone = Err(BackendError::Damaged(key.id.clone()));
            assert_eq!(self.used(&again).await, gone);
        }
        let erased = Material::new(key.id.clone(), key.algorithm, Vec::new());
        self.backend.destroy(&erased).await.unwrap();
    }
}
