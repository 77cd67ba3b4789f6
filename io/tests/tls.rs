//! TLS in front of `Env::serve`: version, ALPN, client certificates, reload, and a proper goodbye.

#![allow(clippy::disallowed_methods)] // test code of the Tokio side itself

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use axum::{Router, extract::Extension, routing::get};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use ron_core::{
    Env, Shutdown,
    outbound::{AddressPolicy, ClientPem, Egress, TlsIdentity},
    seam::HttpError,
    serve::{Peer, ServeOptions, ServeStats},
};
use ron_io::{Data, Tls, TlsPem, TokioOptions, TokioRuntime};
use rustls::{
    ClientConfig, RootCertStore, SupportedProtocolVersion,
    crypto::aws_lc_rs::default_provider,
    version::{TLS12, TLS13},
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    runtime::Handle,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// An authority, and what it signs.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    der: CertificateDer<'static>,
}

struct Signed {
    pem: String,
    der: CertificateDer<'static>,
    key: KeyPair,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let cert = params.self_signed(&key).unwrap();
        Authority {
            issuer: Issuer::new(params, key),
            pem: cert.pem(),
            der: cert.der().clone(),
        }
    }

    fn sign(&self, name: &str) -> Signed {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        Signed {
            pem: cert.pem(),
            der: cert.der().clone(),
            key,
        }
    }

    fn server(&self, client_ca: Option<&Authority>) -> TlsPem {
        let cert = self.sign("localhost");
        TlsPem {
            cert: cert.pem.into_bytes(),
            key: cert.key.serialize_pem().into_bytes(),
            client_ca: client_ca.map(|ca| ca.pem.clone().into_bytes()),
        }
    }

    fn client(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        alpn: &[&str],
        identity: Option<&Signed>,
    ) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some(signed) => {
                let key = PrivateKeyDer::try_from(signed.key.serialize_der()).unwrap();
                builder
                    .with_client_auth_cert(vec![signed.der.clone()], key)
                    .unwrap()
            }
        };
        config.alpn_protocols = alpn.iter().map(|p| p.as_bytes().to_vec()).collect();
        config
    }
}

struct Server {
    addr: SocketAddr,
    tls: Arc<Tls>,
    stats: Arc<ServeStats>,
    stop: Shutdown,
}

fn env(extra_ca_pem: Option<&str>) -> Env {
    let options = TokioOptions {
        data: Data::Memory { limit_bytes: 0 },
        extra_ca_pem: extra_ca_pem.map(|pem| pem.as_bytes().to_vec()),
    };
    Env::new(TokioRuntime::new(Handle::current(), &options).unwrap())
}

async fn serve(pem: &TlsPem) -> Server {
    let tell = |Extension(peer): Extension<Peer>| async move {
        peer.cert.map_or(Bytes::new(), |c| c.chain[0].clone())
    };
    let app = Router::new()
        .route("/", get(async || "hello"))
        .route("/cert", get(tell));
    let env = env(None);
    let listener = env.listen((Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
    let addr = listener.local_addr().unwrap();
    let tls = Tls::new(pem).unwrap();
    let options = ServeOptions {
        tls: Some(tls.clone()),
        ..ServeOptions::default()
    };
    let (stats, stop) = (options.stats.clone(), Shutdown::new());
    let until = stop.clone();
    drop(env.clone().spawn("server", async move {
        env.serve(listener, app, options, until).await
    }));
    Server {
        addr,
        tls,
        stats,
        stop,
    }
}

async fn connect(server: &Server, config: ClientConfig) -> io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(server.addr).await?;
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
}

async fn get_http1(stream: &mut TlsStream<TcpStream>, path: &str) -> io::Result<Vec<u8>> {
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(answer)
}

#[tokio::test]
async fn http1_is_served_over_tls_13_and_ends_with_a_goodbye() {
    let ca = Authority::new();
    let server = serve(&ca.server(None)).await;
    let config = ca.client(&[&TLS13], &["http/1.1"], None);
    let mut stream = connect(&server, config).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    // Without the goodbye of TLS this read ends in an error.
    // proves: KMS-7.3
    let answer = get_http1(&mut stream, "/").await.unwrap();
    assert!(answer.ends_with(b"hello"));
}

#[tokio::test]
async fn http2_is_preferred_by_alpn() {
    let ca = Authority::new();
    let server = serve(&ca.server(None)).await;
    let config = ca.client(&[&TLS13], &["http/1.1", "h2"], None);
    let stream = connect(&server, config).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let io = TokioIo::new(stream);
    let (mut client, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
        .await
        .unwrap();
    tokio::spawn(connection);
    let request = http::Request::get("https://localhost/").body(Empty::<Bytes>::new());
    let response = client.send_request(request.unwrap()).await.unwrap();
    // proves: ADM-7.1
    assert_eq!(response.version(), http::Version::HTTP_2);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "hello");
}

#[tokio::test]
async fn tls_12_is_refused() {
    let ca = Authority::new();
    let server = serve(&ca.server(None)).await;
    let config = ca.client(&[&TLS12], &["http/1.1"], None);
    assert!(connect(&server, config).await.is_err());
    assert!(
        connect(&server, ca.client(&[&TLS13], &[], None))
            .await
            .is_ok()
    );
    assert_eq!(server.stats.handshakes_failed.load(Relaxed), 1);
}

#[tokio::test]
async fn a_client_authority_lets_in_only_its_own_and_tells_the_handler_who() {
    let (ca, clients, strangers) = (Authority::new(), Authority::new(), Authority::new());
    let server = serve(&ca.server(Some(&clients))).await;
    let known = clients.sign("svc-edge");
    let config = ca.client(&[&TLS13], &["http/1.1"], Some(&known));
    let mut stream = connect(&server, config).await.unwrap();
    let answer = get_http1(&mut stream, "/cert").await.unwrap();
    assert!(answer.ends_with(&known.der));

    for identity in [None, Some(&strangers.sign("svc-edge"))] {
        let config = ca.client(&[&TLS13], &["http/1.1"], identity);
        // Under TLS 1.3 a client learns of its refusal with the first answer.
        let refused = match connect(&server, config).await {
            Ok(mut stream) => get_http1(&mut stream, "/cert").await.map(drop),
            Err(error) => Err(error),
        };
        assert!(refused.is_err(), "{:?}", identity.map(|s| &s.pem));
    }
}

#[tokio::test]
async fn a_reload_shows_the_new_certificate_and_a_bad_one_changes_nothing() {
    let (old, new) = (Authority::new(), Authority::new());
    let server = serve(&old.server(None)).await;
    let try_both = async || {
        let [a, b] = [&old, &new].map(|ca| connect(&server, ca.client(&[&TLS13], &[], None)));
        (a.await.is_ok(), b.await.is_ok())
    };
    assert_eq!(try_both().await, (true, false));
    server.tls.renew(Tls::prepare(&new.server(None)).unwrap());
    assert_eq!(try_both().await, (false, true));

    let good = old.server(None);
    for bad in [
        TlsPem {
            cert: b"no certificate".to_vec(),
            ..good.clone()
        },
        TlsPem {
            key: b"no key".to_vec(),
            ..good.clone()
        },
        TlsPem {
            key: new.server(None).key,
            ..good.clone()
        },
        TlsPem {
            client_ca: Some(vec![]),
            ..good
        },
    ] {
        let error = Tls::prepare(&bad).err().unwrap().to_string();
        assert!(!error.contains('\n'), "{error}");
    }
    assert_eq!(try_both().await, (false, true));
}

#[tokio::test]
async fn outbound_https_trusts_the_given_authority_and_no_other() {
    let ca = Authority::new();
    let server = serve(&ca.server(None)).await;
    let url = format!("https://localhost:{}/", server.addr.port());
    let request = || http::Request::get(&url).body(Bytes::new()).unwrap();

    let trusting = env(Some(&ca.pem));
    let deadline = trusting.now() + Duration::from_secs(30);
    let response = trusting.http(request(), deadline).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "hello");

    let error = env(None).http(request(), deadline).await.unwrap_err();
    assert!(!error.outcome_unknown(), "{error:?}");
}

#[tokio::test]
async fn an_egress_shows_its_own_certificate_and_trusts_its_own_authority() {
    let (ca, clients, other) = (Authority::new(), Authority::new(), Authority::new());
    let server = serve(&ca.server(Some(&clients))).await;
    let url = format!("https://localhost:{}/cert", server.addr.port());
    let env = env(None);
    let [one, two] = ["one", "two"].map(|name| clients.sign(name));
    let identity = |ca: &Authority, client: Option<&Signed>| TlsIdentity {
        ca: Some(ca.pem.clone().into_bytes()),
        client: client.map(|signed| ClientPem {
            cert: signed.pem.clone().into_bytes(),
            key: signed.key.serialize_pem().into_bytes().into(),
        }),
    };
    let ask = async |identity: TlsIdentity| {
        let egress = env.egress(AddressPolicy::any(), identity).unwrap();
        let request = http::Request::get(&url).body(Bytes::new()).unwrap();
        let deadline = env.now() + Duration::from_secs(30);
        let answer = env.http_via(&egress, request, deadline).await?;
        Ok::<_, HttpError>(answer.into_body().collect().await.unwrap().to_bytes())
    };
    // Each time its own, whatever connections are left from before.
    for signed in [&one, &two, &one] {
        let shown = ask(identity(&ca, Some(signed))).await.unwrap();
        assert_eq!(shown, signed.der.as_ref());
    }
    // No certificate; another authority than the server's; the server's own is not among the system's.
    assert!(ask(identity(&ca, None)).await.is_err());
    let error = ask(identity(&other, Some(&one))).await.unwrap_err();
    assert!(!error.outcome_unknown(), "{error:?}");
    let client_only = TlsIdentity {
        ca: None,
        ..identity(&ca, Some(&one))
    };
    assert!(ask(client_only).await.is_err());
}

#[tokio::test]
async fn an_outbound_identity_that_cannot_be_used_is_refused_in_one_line() {
    let (ca, signed) = (Authority::new(), Authority::new().sign("one"));
    let no_x509 = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
    let client = |cert: &str, key: &KeyPair| TlsIdentity {
        ca: None,
        client: Some(ClientPem {
            cert: cert.as_bytes().to_vec(),
            key: key.serialize_pem().into_bytes().into(),
        }),
    };
    let bad_ca = TlsIdentity {
        ca: Some(format!("{}{no_x509}", ca.pem).into_bytes()),
        client: None,
    };
    let other_key = KeyPair::generate().unwrap();
    for (identity, told) in [
        (bad_ca, "authority refused: "),
        (client(no_x509, &signed.key), "client certificate refused: "),
        (
            client(&signed.pem, &other_key),
            "client certificate refused: ",
        ),
    ] {
        let error = env(None).egress(AddressPolicy::any(), identity);
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with(told) && !error.contains('\n'), "{error}");
    }
    for pem in ["no certificate", "", no_x509] {
        let options = TokioOptions {
            data: Data::Memory { limit_bytes: 0 },
            extra_ca_pem: Some(pem.as_bytes().to_vec()),
        };
        let refused = TokioRuntime::new(Handle::current(), &options);
        let error = refused.err().expect("it starts without its authority");
        assert!(error.to_string().contains("outbound TLS: "), "{error}");
    }
}

/// A URL's host has many spellings, and only some look like addresses.
#[tokio::test]
async fn every_spelling_of_a_literal_is_checked_as_what_is_dialled() {
    let env = env(None);
    let public = Egress::to(AddressPolicy::public());
    for host in [
        "127.0.0.1",
        "127.1",
        "0x7f.1",
        "2130706433",
        "0177.0.0.1",
        "127.0.0.1.",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "0",
        "localhost",
        "LOCALHOST",
    ] {
        let url = format!("http://{host}:1/");
        let request = http::Request::get(&url).body(Bytes::new()).unwrap();
        let deadline = env.now() + Duration::from_secs(30);
        let error = env.http_via(&public, request, deadline).await.unwrap_err();
        assert!(
            matches!(error, HttpError::Forbidden { .. }),
            "{host}: {error:?}"
        );
    }
}

#[tokio::test]
async fn more_ways_out_than_are_kept_still_work() {
    let ca = Authority::new();
    let server = serve(&ca.server(None)).await;
    let url = format!("https://localhost:{}/", server.addr.port());
    let env = env(Some(&ca.pem));
    for n in (0..40).chain(0..2) {
        let refused = [std::net::IpAddr::from([192, 0, 2, n]).into()];
        let egress = Egress::to(AddressPolicy::any().refuse(refused));
        let request = http::Request::get(&url).body(Bytes::new()).unwrap();
        let deadline = env.now() + Duration::from_secs(30);
        let answer = env.http_via(&egress, request, deadline).await.unwrap();
        assert_eq!(answer.status(), 200);
        answer.into_body().collect().await.unwrap();
    }
    // What made room closed its connections.
    for _ in 0..200 {
        if server.stats.open.load(Relaxed) <= 20 {
            return;
        }
        env.sleep(Duration::from_millis(10)).await;
    }
    panic!("{:?}", server.stats);
}

#[tokio::test]
async fn a_stop_says_goodbye_on_idle_connections() {
    let ca = Authority::new();
    let server = serve(&ca.server(None)).await;
    let config = ca.client(&[&TLS13], &["http/1.1"], None);
    let mut stream = connect(&server, config).await.unwrap();
    let request = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut buf = vec![0; 1024];
    let mut got = 0;
    while !buf[..got].ends_with(b"hello") {
        got += stream.read(&mut buf[got..]).await.unwrap();
    }
    server.stop.trigger();
    // proves: KMS-7.3
    assert_eq!(stream.read(&mut buf).await.unwrap(), 0);
}
