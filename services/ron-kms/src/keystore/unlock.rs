//! What opens a key store: a key file's 32 bytes, or a passphrase stretched by Argon2id.
//!
//! Neither seals a secret. They open the data key, which is random and sealed once, so that a passphrase
//! is changed by sealing 32 bytes anew. How a passphrase is stretched is stored with the salt.

use aws_lc_rs::digest;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use ron_core::{Env, seam::Pool};

use super::{
    StoreError,
    kek::{KEK_LEN, Kek},
};
use crate::keys::{Fill, Secret};

/// What opens the store.
#[derive(Debug)]
pub enum Unlock {
    /// The key-encryption key itself, from a key file.
    Key(Secret),
    /// Stretched by Argon2id with the parameters that the store holds.
    Passphrase(Secret),
}

/// How much work a guess at the passphrase costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stretch {
    pub memory_kib: u32,
    pub passes: u32,
    pub lanes: u32,
}

impl Default for Stretch {
    fn default() -> Stretch {
        Stretch {
            memory_kib: 64 * 1024,
            passes: 3,
            lanes: 1,
        }
    }
}

impl Stretch {
    /// For tests and simulations: no protection against guessing.
    pub const CHEAP: Stretch = Stretch {
        memory_kib: 8,
        passes: 1,
        lanes: 1,
    };
}

/// As it is stored: how to get from what the operator has to the key that opens the data key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Recipe {
    Key,
    Argon2id { salt: [u8; SALT_LEN], cost: Stretch },
}

impl Recipe {
    pub fn new(unlock: &Unlock, cost: Stretch, fill: Fill<'_>) -> Recipe {
        match unlock {
            Unlock::Key(_) => Recipe::Key,
            Unlock::Passphrase(_) => {
                let mut salt = [0; SALT_LEN];
                fill(&mut salt);
                Recipe::Argon2id { salt, cost }
            }
        }
    }

    /// The key that opens the data key. Stretching takes its time on the CPU pool.
    pub async fn key(&self, env: &Env, unlock: Unlock) -> Result<Kek, StoreError> {
        let secret = match (self, unlock) {
            (Recipe::Key, Unlock::Key(key)) => key,
            (Recipe::Argon2id { salt, cost }, Unlock::Passphrase(passphrase)) => {
                let (salt, cost) = (*salt, *cost);
                let stretched = env.offload(Pool::CPU, move || stretch(&passphrase, &salt, cost));
                let stretched = stretched.await.map_err(|_| stretching_failed())?;
                stretched.ok_or_else(stretching_failed)?
            }
            _ => return Err(StoreError::WrongKey),
        };
        Kek::from_secret(secret).ok_or(StoreError::BadUnlock)
    }
}

impl Unlock {
    pub(super) fn check(&self) -> Result<(), StoreError> {
        let usable = match self {
            Unlock::Key(key) => key.len() == KEK_LEN,
            Unlock::Passphrase(passphrase) => !passphrase.is_empty(),
        };
        usable.then_some(()).ok_or(StoreError::BadUnlock)
    }
}

const SALT_LEN: usize = 16;
/// More than this is no setting of ours: a damaged store must not take all memory.
const MOST_MEMORY_KIB: u32 = 4 * 1024 * 1024;
const MOST_PASSES: u32 = 1000;

fn stretching_failed() -> StoreError {
    StoreError::Damaged("its passphrase parameters cannot be used".to_owned())
}

fn stretch(passphrase: &Secret, salt: &[u8; SALT_LEN], cost: Stretch) -> Option<Secret> {
    if cost.memory_kib > MOST_MEMORY_KIB || cost.passes > MOST_PASSES {
        return None;
    }
    let params = argon2::Params::new(cost.memory_kib, cost.passes, cost.lanes, Some(KEK_LEN));
    let argon2 = argon2::Argon2::new(
        argon2::Algorithm::Argon2id,
        argon2::Version::V0x13,
        params.ok()?,
    );
    // Hashed first: a passphrase of any length takes the same path.
    let digest = digest::digest(&digest::SHA256, passphrase.expose());
    let mut out = Zeroizing::new([0; KEK_LEN]);
    argon2
        .hash_password_into(digest.as_ref(), salt, &mut *out)
        .ok()?;
    Some(Secret::copy_of(&*out))
}
