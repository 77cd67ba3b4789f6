//! TLS for listeners: version 1.3 only, HTTP/2 or HTTP/1.1 by ALPN, client certificates if an authority
//! for them is given.
//!
//! Always: a connection sees one consistent set of certificates; a reload that fails changes nothing.

use std::{io, sync::Arc};

use arc_swap::ArcSwap;
use bytes::Bytes;
use ron_core::{
    seam::{BoxFuture, Conn},
    serve::{ClientCert, TlsAccept},
};
use rustls::{
    RootCertStore, ServerConfig, crypto::aws_lc_rs, server::WebPkiClientVerifier, version::TLS13,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
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

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("no certificate in the {0} PEM")]
    NoCertificate(&'static str),
    #[error("malformed {0} PEM: {1}")]
    Pem(&'static str, rustls_pki_types::pem::Error),
    #[error("certificate refused: {0}")]
    Refused(String),
}

pub struct Tls {
    config: ArcSwap<ServerConfig>,
}

impl Tls {
    pub fn new(pem: &TlsPem) -> Result<Arc<Self>, TlsError> {
        Ok(Arc::new(Tls {
            config: ArcSwap::from_pointee(server_config(pem)?),
        }))
    }

    /// New connections use the new certificates; open ones keep what they have.
    pub fn reload(&self, pem: &TlsPem) -> Result<(), TlsError> {
        self.config.store(Arc::new(server_config(pem)?));
        Ok(())
    }
}

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

fn server_config(pem: &TlsPem) -> Result<ServerConfig, TlsError> {
    let refused = |error: &dyn std::fmt::Display| TlsError::Refused(error.to_string());
    let provider = Arc::new(aws_lc_rs::default_provider());
    let chain = certificates("certificate", &pem.cert)?;
    let key = PrivateKeyDer::from_pem_slice(&pem.key).map_err(|e| TlsError::Pem("key", e))?;
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])
        .map_err(|e| refused(&e))?;
    let builder = match &pem.client_ca {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let mut roots = RootCertStore::empty();
            for cert in certificates("client authority", ca)? {
                roots.add(cert).map_err(|e| refused(&e))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
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

fn certificates(which: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|e| TlsError::Pem(which, e))?;
    if found.is_empty() {
        return Err(TlsError::NoCertificate(which));
    }
    Ok(found)
}
