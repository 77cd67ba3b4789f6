//! The way out of a request: which addresses may be dialled, and who both ends prove to be.
//!
//! Always: an [`Egress`] with a TLS identity was made by [`Env::egress`](crate::Env::egress), which checked that the
//! identity can be used. Requests of different egresses never share a connection.

use std::{fmt, sync::Arc};

use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use zeroize::Zeroizing;

use super::AddressPolicy;

/// Cheap to clone. By default every address may be dialled, the system's authorities are trusted and no certificate
/// is shown.
#[derive(Clone, Debug, Default)]
pub struct Egress(Option<Arc<Inner>>);

#[derive(Debug, PartialEq, Eq)]
struct Inner {
    addresses: AddressPolicy,
    identity: TlsIdentity,
}

/// Whom to trust, and what to show; all PEM.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TlsIdentity {
    /// If given, these authorities are trusted and no others.
    pub ca: Option<Vec<u8>>,
    pub client: Option<ClientPem>,
}

/// A client's certificate and its key.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientPem {
    /// The chain, own certificate first.
    pub cert: Vec<u8>,
    pub key: Zeroizing<Vec<u8>>,
}

/// Why an identity cannot be used; always one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    #[error("no certificate in the {0} PEM")]
    NoCertificate(&'static str),
    #[error("no private key in the key PEM")]
    NoKey,
    #[error("malformed {0} PEM: {1}")]
    Malformed(&'static str, String),
    /// It is well-formed, and unusable: no X.509, or a key that belongs to another certificate.
    #[error("{0} refused: {1}")]
    Refused(&'static str, String),
}

impl Egress {
    /// To these addresses, without an identity.
    pub fn to(addresses: AddressPolicy) -> Egress {
        Egress::new(addresses, TlsIdentity::default())
    }

    /// For [`Env::egress`](crate::Env::egress), which checks the identity first.
    pub(crate) fn new(addresses: AddressPolicy, identity: TlsIdentity) -> Egress {
        Egress(Some(Arc::new(Inner {
            addresses,
            identity,
        })))
    }

    pub fn addresses(&self) -> &AddressPolicy {
        const ANY: &AddressPolicy = &AddressPolicy::any();
        self.0.as_ref().map_or(ANY, |inner| &inner.addresses)
    }

    pub fn identity(&self) -> &TlsIdentity {
        const NONE: &TlsIdentity = &TlsIdentity {
            ca: None,
            client: None,
        };
        self.0.as_ref().map_or(NONE, |inner| &inner.identity)
    }
}

impl PartialEq for Egress {
    fn eq(&self, other: &Egress) -> bool {
        let same = |a: &Arc<Inner>, b: &Arc<Inner>| Arc::ptr_eq(a, b);
        match (&self.0, &other.0) {
            (None, None) => true,
            (Some(a), Some(b)) if same(a, b) => true,
            _ => self.addresses() == other.addresses() && self.identity() == other.identity(),
        }
    }
}

impl Eq for Egress {}

impl TlsIdentity {
    /// What can be told of it without knowing X.509.
    pub fn check_pem(&self) -> Result<(), IdentityError> {
        if let Some(ca) = &self.ca {
            certificates("authority", ca)?;
        }
        if let Some(client) = &self.client {
            certificates("client certificate", &client.cert)?;
            private_key(&client.key)?;
        }
        Ok(())
    }
}

/// The certificates of a PEM, at least one; `which` is for the error.
pub fn certificates(
    which: &'static str,
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| malformed(which, &error))?;
    match found.is_empty() {
        true => Err(IdentityError::NoCertificate(which)),
        false => Ok(found),
    }
}

pub fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, IdentityError> {
    use rustls_pki_types::pem::Error;
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| match error {
        Error::NoItemsFound => IdentityError::NoKey,
        other => malformed("key", &other),
    })
}

fn malformed(which: &'static str, error: &dyn fmt::Display) -> IdentityError {
    IdentityError::Malformed(which, error.to_string())
}

impl fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsIdentity")
            .field("ca", &self.ca.is_some())
            .field("client", &self.client.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_ways_are_one_and_different_ones_are_not() {
        let with_ca = |ca: &str| TlsIdentity {
            ca: Some(ca.into()),
            client: None,
        };
        let ways = [
            Egress::to(AddressPolicy::public()),
            Egress::to(AddressPolicy::none()),
            Egress::new(AddressPolicy::public(), with_ca("a")),
            Egress::new(AddressPolicy::public(), with_ca("b")),
            Egress::default(),
        ];
        for (n, a) in ways.iter().enumerate() {
            for (m, b) in ways.iter().enumerate() {
                assert_eq!(a == b, n == m, "{a:?} {b:?}");
            }
        }
        assert_eq!(Egress::to(AddressPolicy::any()), Egress::default());
        assert_eq!(ways[2], Egress::new(AddressPolicy::public(), with_ca("a")));
    }

    #[test]
    fn secrets_are_not_told() {
        let client = ClientPem {
            cert: b"cert".to_vec(),
            key: Zeroizing::new(b"secret".to_vec()),
        };
        let identity = TlsIdentity {
            ca: None,
            client: Some(client),
        };
        let told = format!("{:?}", Egress::new(AddressPolicy::any(), identity));
        assert!(
            told.contains("client: true") && !told.contains("secret"),
            "{told}"
        );
    }
}
