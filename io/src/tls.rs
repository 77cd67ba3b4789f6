//! TLS for listeners: version 1.3 only, HTTP/2 or HTTP/1.1 by ALPN, client certificates if an authority
//! for them is given. And what X.509 says about the identities of outbound requests.
//!
//! Always: a connection sees one consistent set of certificates; a reload that fails changes nothing.

use std::{fmt::Display, io, sync::Arc};

use arc_swap::ArcSwap;
use bytes::Bytes;
use ron_core::{
    outbound::{ClientPem, IdentityError, certificates, private_key},
    seam::{BoxFuture, Conn},
    serve::{ClientCert, TlsAccept},
};
use rustls::{
    RootCertStore, ServerConfig, crypto::aws_lc_rs, server::WebPkiClientVerifier,
    sign::CertifiedKey, version::TLS13,
};
use tokio_rustls::TlsAcceptor;

/// What a listener proves itself with, and whom it trusts; all PEM.
#[derive(Clone)]
pub struct TlsPem {
    /// The chain, own certificate first.
    pub cert: Vec<u8>,
    pub key: Vec<u8>,
    /// If given, a client must show a certificate signed by one of these.
    pub client_ca: Option<Vec<u8>>,
}

pub struct Tls {
    config: ArcSwap<ServerConfig>,
}

impl Tls {
    pub fn new(pem: &TlsPem) -> Result<Arc<Self>, IdentityError> {
        Ok(Arc::new(Tls {
            config: ArcSwap::from_pointee(server_config(pem)?),
        }))
    }

    /// Checks what [`Tls::renew`] then puts in force.
    pub fn prepare(pem: &TlsPem) -> Result<Renewed, IdentityError> {
        server_config(pem).map(Renewed)
    }

    /// New connections use the new certificates; open ones keep what they have.
    pub fn renew(&self, new: Renewed) {
        self.config.store(Arc::new(new.0));
    }
}

/// Certificates that were found good.
pub struct Renewed(ServerConfig);

impl TlsAccept for Tls {
    fn accept(&self, conn: Conn) -> BoxFuture<'static, io::Result<(Conn, Option<ClientCert>)>> {
        let handshake = TlsAcceptor::from(self.config.load_full()).accept(conn);
        Box::pin(async move {
            let stream = handshake.await?;
            let cert = stream.get_ref().1.peer_certificates().map(|chain| {
                let chain = chain.iter().map(|c| Bytes::copy_from_slice(c)).collect();
                ClientCert { chain }
            });
            Ok((Box::new(stream) as Conn, cert))
        })
    }
}

fn server_config(pem: &TlsPem) -> Result<ServerConfig, IdentityError> {
    let refused = |error: &dyn Display| refused("certificate", error);
    let provider = Arc::new(aws_lc_rs::default_provider());
    let chain = certificates("certificate", &pem.cert)?;
    let key = private_key(&pem.key)?;
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])
        .map_err(|e| refused(&e))?;
    let builder = match &pem.client_ca {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let roots = Arc::new(roots("client authority", ca)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider)
                .build()
                .map_err(|e| refused(&e))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|e| refused(&e))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn roots(which: &'static str, pem: &[u8]) -> Result<RootCertStore, IdentityError> {
    let mut roots = RootCertStore::empty();
    for cert in certificates(which, pem)? {
        roots.add(cert).map_err(|error| refused(which, &error))?;
    }
    Ok(roots)
}

/// Authorities that an outbound request is to trust.
pub(crate) fn check_authorities(pem: &[u8]) -> Result<(), IdentityError> {
    roots("authority", pem).map(drop)
}

/// A client's certificate can be shown, and its key belongs to it.
pub(crate) fn check_client(client: &ClientPem) -> Result<(), IdentityError> {
    let chain = certificates("client certificate", &client.cert)?;
    let key = private_key(&client.key)?;
    CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider())
        .map(drop)
        .map_err(|error| refused("client certificate", &error))
}

fn refused(which: &'static str, error: &dyn Display) -> IdentityError {
    IdentityError::Refused(which, error.to_string())
}
