//! Where keys are found, and which answers are not believed.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use axum::body::Body;
use futures_util::stream;
use serde_json::{Value, json};

use super::*;
use crate::{
    auth::test_tokens::{ISSUER, jwks},
    test_env::World,
};

const TIMEOUT: Duration = Duration::from_secs(2);

/// An issuer that answers by path, and what it was asked for.
fn issuer(
    answer: impl Fn(&str) -> http::Response<Body> + Send + Sync + 'static,
) -> (World, Arc<Mutex<Vec<String>>>) {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let told = asked.clone();
    let world = World::with_upstream(Box::new(move |request| {
        let url = request.uri().to_string();
        let answer = answer(&url);
        told.lock().unwrap().push(url);
        Box::pin(async { Ok(answer) })
    }));
    (world, asked)
}

fn discovery(issuer: &str) -> KeySource {
    let metadata = format!("{issuer}/.well-known/openid-configuration");
    KeySource::Discovery {
        issuer: issuer.to_owned(),
        metadata: metadata.parse().unwrap(),
        allow_http: false,
    }
}

fn direct() -> KeySource {
    KeySource::Jwks(Uri::from_static("https://issuer.test/keys"))
}

fn fetched(world: &World, source: &KeySource) -> Result<Vec<String>, &'static str> {
    let got = world.run(fetch(&world.env(), source, TIMEOUT));
    got.map(|(keys, _)| keys.kids().map(str::to_owned).collect())
        .map_err(|error| error.reason())
}

#[test]
fn the_issuer_alone_is_enough_its_metadata_names_the_keys() {
    let (world, asked) = issuer(|url| {
        let metadata = json!({"issuer": ISSUER, "jwks_uri": "https://keys.test/now", "x": 1});
        http::Response::new(Body::from(match url {
            "https://keys.test/now" => jwks(&[1]),
            _ => metadata.to_string().into_bytes(),
        }))
    });
    assert_eq!(
        fetched(&world, &discovery(ISSUER)),
        Ok(vec!["ec".into(), "k1".into()])
    );
    let expected = [
        "https://issuer.test/.well-known/openid-configuration",
        "https://keys.test/now",
    ];
    assert_eq!(*asked.lock().unwrap(), expected);
}

#[test]
fn metadata_that_cannot_be_believed_has_its_reason_and_leads_nowhere() {
    let keys = "https://issuer.test/keys";
    let cases: [(Value, &str); 8] = [
        (
            json!({"issuer": "https://issuer.test/", "jwks_uri": keys}),
            "issuer_mismatch",
        ),
        (
            json!({"issuer": "https://evil.test", "jwks_uri": keys}),
            "issuer_mismatch",
        ),
        (json!({"jwks_uri": keys}), "malformed"),
        (json!({"issuer": ISSUER}), "malformed"),
        (
            json!({"issuer": ISSUER, "jwks_uri": "not an address"}),
            "malformed",
        ),
        (json!({"issuer": ISSUER, "jwks_uri": "/keys"}), "insecure"),
        (
            json!({"issuer": ISSUER, "jwks_uri": "http://issuer.test/keys"}),
            "insecure",
        ),
        (json!("<html>"), "malformed"),
    ];
    for (metadata, reason) in cases {
        let told = metadata.to_string();
        let (world, asked) = issuer(move |_| http::Response::new(Body::from(told.clone())));
        assert_eq!(
            fetched(&world, &discovery(ISSUER)),
            Err(reason),
            "{metadata}"
        );
        assert_eq!(asked.lock().unwrap().len(), 1, "{metadata}");
    }
}

#[test]
fn keys_come_over_https_unless_they_stay_on_this_machine_or_it_is_allowed() {
    for (url, safe, allowed) in [
        ("https://issuer.test/keys", true, true),
        ("http://issuer.test/keys", false, true),
        ("http://10.0.0.1/keys", false, true),
        ("http://127.0.0.1.issuer.test/", false, true),
        ("http://localhost.issuer.test/", false, true),
        ("http://localhost:9/keys", true, true),
        ("http://127.9.9.9/keys", true, true),
        ("http://[::1]:9/keys", true, true),
        ("http://[::ffff:127.0.0.1]/keys", true, true),
        ("ftp://localhost/keys", false, false),
        ("/keys", false, false),
    ] {
        let parsed = url.parse().unwrap();
        assert_eq!(
            (is_safe(&parsed, false), is_safe(&parsed, true)),
            (safe, allowed),
            "{url}"
        );
    }
}

#[test]
fn how_long_keys_are_fresh_is_read_from_cache_control() {
    for (value, expected) in [
        ("max-age=60", Some(60)),
        ("public, max-age=5, must-revalidate", Some(5)),
        ("no-store", None),
        ("max-age=soon", None),
        ("max-age=-1", None),
    ] {
        let headers = HeaderMap::from_iter([(header::CACHE_CONTROL, value.parse().unwrap())]);
        assert_eq!(
            max_age(&headers),
            expected.map(Duration::from_secs),
            "{value}"
        );
    }
}

// proves: ADM-7.12
#[test]
fn an_oversized_answer_is_not_read_to_its_end() {
    static READ: AtomicUsize = AtomicUsize::new(0);
    let (world, _) = issuer(|_| {
        let chunk = |_| {
            READ.fetch_add(1, Ordering::Relaxed);
            Ok::<_, std::io::Error>(Bytes::from(vec![b' '; MAX_ANSWER_BYTES]))
        };
        let chunks = futures_util::StreamExt::map(stream::iter(0..100), chunk);
        http::Response::new(Body::from_stream(chunks))
    });
    assert_eq!(fetched(&world, &direct()), Err("too_large"));
    assert_eq!(READ.load(Ordering::Relaxed), 2);
}

#[test]
fn an_answer_that_breaks_off_or_never_ends_is_given_up() {
    let torn = || Err::<Bytes, _>(std::io::Error::other("torn"));
    let (world, _) =
        issuer(move |_| http::Response::new(Body::from_stream(stream::iter([torn()]))));
    assert_eq!(fetched(&world, &direct()), Err("torn"));

    let (world, asked) = issuer(|url| {
        let metadata = json!({"issuer": ISSUER, "jwks_uri": "https://issuer.test/keys"});
        http::Response::new(match url.ends_with("configuration") {
            true => Body::from(metadata.to_string()),
            false => Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>()),
        })
    });
    assert_eq!(fetched(&world, &discovery(ISSUER)), Err("timeout"));
    assert_eq!((world.elapsed(), asked.lock().unwrap().len()), (TIMEOUT, 2));
}
