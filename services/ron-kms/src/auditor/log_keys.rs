//! The keys that sign the log's checkpoints, and what a reader needs to trust them.

use aws_lc_rs::signature::{Ed25519KeyPair, ML_DSA_44_SIGNING, PqdsaKeyPair};

use crate::{
    audit::checkpoint::{SigningKeys, Trust},
    error::KmsError,
    keystore::Identity,
};

/// What signs the log's checkpoints.
pub struct LogKeys {
    pub origin: String,
    ed25519: Ed25519KeyPair,
    ml_dsa_44: PqdsaKeyPair,
}

impl LogKeys {
    pub fn new(origin: &str, identity: &Identity) -> Result<LogKeys, KmsError> {
        let bad = || KmsError::Store("the audit log's signing key is damaged".into());
        Ok(LogKeys {
            origin: origin.to_owned(),
            ed25519: Ed25519KeyPair::from_seed_unchecked(identity.ed25519_seed.expose())
                .map_err(|_| bad())?,
            ml_dsa_44: PqdsaKeyPair::from_seed(
                &ML_DSA_44_SIGNING,
                identity.ml_dsa_44_seed.expose(),
            )
            .map_err(|_| bad())?,
        })
    }

    pub fn signing(&self) -> SigningKeys<'_> {
        SigningKeys {
            ed25519: &self.ed25519,
            ml_dsa_44: &self.ml_dsa_44,
        }
    }

    pub fn trust(&self) -> Result<Trust, KmsError> {
        let keys = self.signing().verifiers(&self.origin);
        Ok(Trust {
            origin: self.origin.clone(),
            keys: keys.map_err(|error| KmsError::Store(error.to_string()))?,
        })
    }
}
