//! Who is let in and who is not, mode by mode.

use http::HeaderMap;
use jsonwebtoken::{Algorithm, EncodingKey};
use serde_json::{Value, json};

use super::{test_tokens::*, *};
use crate::{config::Sources, telemetry::Telemetry};

type Sent<'a> = &'a [(&'a str, &'a str)];

const NOW: u64 = 1_700_000_000;

fn at(secs: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(secs)
}

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&str, &str)| (name.parse().unwrap(), value.parse().unwrap());
    let mut headers = HeaderMap::new();
    for (name, value) in pairs.iter().map(pair) {
        let name: HeaderName = name;
        headers.append(name, value);
    }
    headers
}

fn passport() -> Passport {
    Passport {
        leeway: Duration::from_secs(30),
        cookie: Some("session".to_owned()),
        ..super::test_tokens::passport()
    }
}

fn keys() -> KeySet {
    KeySet::parse(&jwks(&[1, 2])).unwrap()
}

fn decide_token(token: &str, now: u64) -> Result<Identity, AuthError> {
    let bearer = headers(&[("authorization", &format!("Bearer {token}"))]);
    decide(&Mode::Passport(passport()), &bearer, None, &keys(), at(now))
}

// proves: ADM-2.16
#[test]
fn mode_none_lets_everyone_in_but_only_on_loopback() {
    let identity = decide(
        &Mode::None,
        &HeaderMap::new(),
        None,
        &KeySet::default(),
        at(0),
    )
    .unwrap();
    assert!(identity.has_scope("anything") && !identity.is_authenticated());
    for (bind, allowed) in [
        ("127.0.0.1:80", true),
        ("127.9.9.9:80", true),
        ("[::1]:80", true),
        ("[::ffff:127.0.0.1]:80", true),
        ("0.0.0.0:80", false),
        ("[::]:80", false),
        ("10.0.0.1:80", false),
    ] {
        let bind = bind.parse().unwrap();
        assert_eq!(check_bind(&Mode::None, bind).is_ok(), allowed, "{bind}");
        assert!(check_bind(&Mode::Passport(passport()), bind).is_ok());
    }
}

// proves: ADM-2.17
#[test]
fn ingress_headers_count_only_from_a_trusted_peer_and_only_once() {
    let mode = Mode::Ingress(Ingress {
        user_header: HeaderName::from_static("x-user"),
        groups_header: HeaderName::from_static("x-groups"),
        tenant_header: HeaderName::from_static("x-tenant"),
        trusted: vec!["10.0.0.0/8".parse().unwrap()],
    });
    let full: &[_] = &[
        ("x-user", "ada"),
        ("x-groups", "ops:admin, dev,"),
        ("x-tenant", "t1"),
    ];
    let cases: &[(Sent<'_>, Option<&str>, Result<&str, AuthError>)] = &[
        (full, Some("10.1.2.3"), Ok("ada")),
        (full, Some("::ffff:10.1.2.3"), Ok("ada")),
        (full, Some("11.1.2.3"), Err(AuthError::UntrustedPeer)),
        (full, None, Err(AuthError::UntrustedPeer)),
        (
            &[("x-groups", "dev")],
            Some("10.1.2.3"),
            Err(AuthError::MissingCredentials),
        ),
        (
            &[("x-user", "")],
            Some("10.1.2.3"),
            Err(AuthError::MissingCredentials),
        ),
        (
            &[("x-user", "a"), ("x-user", "b")],
            Some("10.1.2.3"),
            Err(AuthError::MalformedHeader),
        ),
        (
            &[("x-user", "a"), ("x-groups", "a"), ("x-groups", "b")],
            Some("10.1.2.3"),
            Err(AuthError::MalformedHeader),
        ),
    ];
    for (sent, peer, expected) in cases {
        let peer = peer.map(|ip| ip.parse().unwrap());
        let got = decide(&mode, &headers(sent), peer, &KeySet::default(), at(0));
        assert_eq!(
            got.as_ref().map(|i| i.subject.as_str()).map_err(|e| *e),
            *expected,
            "{sent:?}"
        );
        if let Ok(identity) = got {
            assert_eq!(
                identity.scopes.iter().collect::<Vec<_>>(),
                ["dev", "ops:admin"]
            );
            assert_eq!(
                (identity.tenant.as_deref(), identity.via),
                (Some("t1"), Via::Ingress)
            );
            assert_eq!(identity.require("dev"), Ok(()));
            assert_eq!(identity.require("kms:sign"), Err(AuthError::MissingScope));
        }
    }
}

// proves: ADM-2.18
#[test]
fn a_sound_token_identifies_its_caller() {
    let many = json!({"sub": "ada", "iss": ISSUER, "aud": ["x", AUDIENCE], "exp": NOW + 60, "scope": ["a", "b"]});
    let cases = [
        (good(1, NOW + 60), Some("t1"), vec!["kms:sign", "ops:admin"]),
        (good(2, NOW + 60), Some("t1"), vec!["kms:sign", "ops:admin"]),
        (
            token(Algorithm::ES256, "ec", &ec_key(), &claims(NOW + 60)),
            Some("t1"),
            vec!["kms:sign", "ops:admin"],
        ),
        (
            token(Algorithm::EdDSA, "k1", &ed_key(1), &many),
            None,
            vec!["a", "b"],
        ),
    ];
    for (token, tenant, scopes) in cases {
        let identity = decide_token(&token, NOW).unwrap();
        assert_eq!(
            (identity.subject.as_str(), identity.tenant.as_deref()),
            ("ada", tenant)
        );
        assert_eq!(
            identity
                .scopes
                .iter()
                .map(String::as_str)
                .collect::<Vec<_>>(),
            scopes
        );
        assert!(identity.is_authenticated());
    }
}

fn edited(base: &Value, name: &str, value: Value) -> String {
    let mut claims = base.clone();
    match value {
        Value::Null => claims.as_object_mut().unwrap().remove(name),
        value => claims
            .as_object_mut()
            .unwrap()
            .insert(name.to_owned(), value),
    };
    token(Algorithm::EdDSA, "k1", &ed_key(1), &claims)
}

/// Base64url without padding.
fn encoded(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let digits = text.as_bytes().chunks(3).flat_map(|piece| {
        let bits = piece
            .iter()
            .fold(0u32, |bits, byte| (bits << 8) | u32::from(*byte));
        let bits = bits << (8 * (3 - piece.len()));
        (0..=piece.len()).map(move |n| DIGITS[(bits >> (18 - 6 * n)) as usize & 63])
    });
    digits.map(char::from).collect()
}

/// This header and good claims, with whatever signature.
fn forged(header: &str, signature: &str) -> String {
    let real = good(1, NOW + 60);
    let claims = real.split('.').nth(1).unwrap();
    format!("{}.{claims}.{signature}", encoded(header))
}

// proves: ADM-8.6
#[test]
fn every_way_a_token_can_be_wrong_has_its_own_reason() {
    use AuthError::*;
    let base = claims(NOW + 60);
    let real = good(1, NOW + 60);
    let (message, signature) = real.rsplit_once('.').unwrap();
    // Algorithm confusion: the public key, which anyone has, used as a shared secret.
    let public = serde_json::from_slice::<Value>(&jwks(&[1])).unwrap();
    let public = super::jwt::base64url(public["keys"][0]["x"].as_str().unwrap()).unwrap();
    let confused = token(
        Algorithm::HS256,
        "k1",
        &EncodingKey::from_secret(&public),
        &base,
    );
    let mut flipped = signature.to_owned();
    flipped.replace_range(0..1, if signature.starts_with('A') { "B" } else { "A" });
    let cases = [
        (confused, AlgKeyMismatch),
        (
            token(Algorithm::ES256, "k1", &ec_key(), &base),
            AlgKeyMismatch,
        ),
        (forged(r#"{"alg":"none","kid":"k1"}"#, ""), AlgNone),
        (forged(r#"{"alg":"NoNe"}"#, ""), AlgNone),
        (forged(r#"{"alg":"XY1","kid":"k1"}"#, signature), AlgUnknown),
        (
            forged(r#"{"alg":"EdDSA","kid":"k9"}"#, signature),
            UnknownKid,
        ),
        (forged(r#"{"alg":"EdDSA"}"#, signature), UnknownKid),
        (
            forged(r#"{"alg":"EdDSA","kid":"k1","crit":["b64"]}"#, signature),
            MalformedToken,
        ),
        (forged(r#"{"kid":"k1"}"#, signature), MalformedToken),
        (
            token(Algorithm::EdDSA, "k1", &ed_key(2), &base),
            BadSignature,
        ),
        (format!("{message}.{flipped}"), BadSignature),
        (format!("{message}."), BadSignature),
        (message.to_owned(), MalformedToken),
        ("x".to_owned(), MalformedToken),
        ("..".to_owned(), MalformedToken),
        (format!("{real}.x"), MalformedToken),
        (
            edited(&base, "iss", json!("https://other.test")),
            IssuerMismatch,
        ),
        (edited(&base, "aud", json!("other")), AudienceMismatch),
        (edited(&base, "aud", json!(["other"])), AudienceMismatch),
        (edited(&base, "aud", Value::Null), MalformedToken),
        (edited(&base, "exp", Value::Null), MalformedToken),
        (edited(&base, "exp", json!("soon")), MalformedToken),
        (edited(&base, "exp", json!(1e300)), MalformedToken),
        (
            edited(&base, "exp", json!(253_402_300_800_u64)),
            MalformedToken,
        ),
        (edited(&base, "exp", json!(u64::MAX)), MalformedToken),
        (edited(&base, "nbf", json!(-1)), MalformedToken),
        (edited(&base, "iat", json!(-0.5)), MalformedToken),
        (edited(&base, "iat", json!(NOW + 31)), NotYetValid),
        (edited(&base, "iat", json!(NOW as f64 + 30.5)), NotYetValid),
        (edited(&base, "exp", json!(NOW as f64 - 30.5)), Expired),
        (edited(&base, "at_hash", json!("x")), WrongType),
        (edited(&base, "c_hash", json!("x")), WrongType),
        (edited(&base, "events", json!({})), WrongType),
        (edited(&base, "typ", json!("Refresh")), WrongType),
        (edited(&base, "token_use", json!("id")), WrongType),
        (edited(&base, "sub", json!("")), MalformedToken),
        (edited(&base, "exp", json!(NOW - 30)), Expired),
        (edited(&base, "nbf", json!(NOW + 31)), NotYetValid),
        (
            edited(&base, "pad", json!("x".repeat(9000))),
            MalformedToken,
        ),
    ];
    for (token, reason) in cases {
        assert_eq!(decide_token(&token, NOW).unwrap_err(), reason, "{token}");
    }
    for fine in [
        edited(&base, "exp", json!(NOW - 29)),
        edited(&base, "exp", json!(NOW as f64 - 29.5)),
        edited(&base, "exp", json!(253_402_300_799_u64)),
        edited(&base, "nbf", json!(NOW + 30)),
        edited(&base, "iat", json!(NOW + 30)),
        edited(&base, "typ", json!("Bearer")),
        edited(&base, "token_use", json!("access")),
    ] {
        assert!(decide_token(&fine, NOW).is_ok());
    }
}

/// Header and claims as they are written here, signed by the key `k1`.
fn written(header: &str, claims: &str) -> String {
    let message = format!("{}.{}", encoded(header), encoded(claims));
    let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &ed_key(1), Algorithm::EdDSA);
    format!("{message}.{}", signature.unwrap())
}

// What a parser might take either way is taken neither way.
#[test]
fn a_name_that_occurs_twice_makes_a_token_malformed() {
    let header = r#"{"alg":"EdDSA","kid":"k1"}"#;
    let claims = format!(
        r#"{{"sub":"ada","iss":"{ISSUER}","aud":"{AUDIENCE}","exp":{}}}"#,
        NOW + 60
    );
    assert!(decide_token(&written(header, &claims), NOW).is_ok());
    let twice = |text: &str, pair: &str| text.replacen('{', &format!("{{{pair},"), 1);
    for (header, claims) in [
        (twice(header, r#""alg":"EdDSA""#), claims.clone()),
        (twice(header, r#""kid":"k2""#), claims.clone()),
        (header.to_owned(), twice(&claims, r#""sub":"eve""#)),
        (header.to_owned(), twice(&claims, r#""exp":9999999999"#)),
        (header.to_owned(), twice(&claims, r#""aud":["x"]"#)),
        (header.to_owned(), format!("{claims} x")),
    ] {
        let got = decide_token(&written(&header, &claims), NOW);
        assert_eq!(got, Err(AuthError::MalformedToken), "{header} {claims}");
    }
}

/// Keys and addresses that the token itself brings are not looked at.
#[test]
fn a_token_never_says_which_key_or_algorithm_it_is_checked_with() {
    let stranger = serde_json::from_slice::<Value>(&jwks(&[9])).unwrap()["keys"][0].clone();
    let claims = claims(NOW + 60).to_string();
    for (name, value) in [
        ("jwk", stranger.clone()),
        ("jku", json!("https://evil.test/keys")),
        ("x5u", json!("https://evil.test/chain")),
        ("x5c", json!(["AAAA"])),
    ] {
        let header = json!({"alg": "EdDSA", "kid": "k1", name: value}).to_string();
        assert!(
            decide_token(&written(&header, &claims), NOW).is_ok(),
            "{name} is passed over"
        );
        let header = json!({"alg": "EdDSA", "kid": "k9", name: value}).to_string();
        let got = decide_token(&written(&header, &claims), NOW);
        assert_eq!(got, Err(AuthError::UnknownKid), "{name} brings no key");
    }
    let narrow = Passport {
        algorithms: vec![SignatureAlg::Es256],
        ..passport()
    };
    let bearer = headers(&[("authorization", &format!("Bearer {}", good(1, NOW + 60)))]);
    let got = decide(&Mode::Passport(narrow), &bearer, None, &keys(), at(NOW));
    assert_eq!(got, Err(AuthError::AlgUnknown));
}

#[test]
fn only_access_tokens_of_the_configured_types_pass() {
    use TokenType::*;
    let cases: [(Option<&str>, &[TokenType]); 9] = [
        (None, &[Absent]),
        (Some("JWT"), &[Jwt]),
        (Some("jwt"), &[Jwt]),
        (Some("application/JWT"), &[Jwt]),
        (Some("at+jwt"), &[AtJwt]),
        (Some("application/at+JWT"), &[AtJwt]),
        (Some("absent"), &[]),
        (Some("logout+jwt"), &[]),
        (Some("text/JWT"), &[]),
    ];
    for (typ, fitting) in cases {
        let mut header = json!({"alg": "EdDSA", "kid": "k1"});
        if let Some(typ) = typ {
            header["typ"] = typ.into();
        }
        let token = written(&header.to_string(), &claims(NOW + 60).to_string());
        let bearer = headers(&[("authorization", &format!("Bearer {token}"))]);
        for only in [AtJwt, Jwt, Absent] {
            let p = Passport {
                types: vec![only],
                ..passport()
            };
            let got = decide(&Mode::Passport(p), &bearer, None, &keys(), at(NOW));
            let expected = (!fitting.contains(&only)).then_some(AuthError::WrongType);
            assert_eq!(got.err(), expected, "{typ:?} {only:?}");
        }
    }
}

#[test]
fn leeway_is_bounded_whatever_is_configured() {
    let mut generous = passport();
    generous.leeway = Duration::from_secs(1_000_000);
    let bearer = headers(&[("authorization", &format!("Bearer {}", good(1, NOW)))]);
    let ask = |now| {
        decide(
            &Mode::Passport(generous.clone()),
            &bearer,
            None,
            &keys(),
            at(now),
        )
    };
    assert!(ask(NOW + 299).is_ok());
    assert_eq!(ask(NOW + 300), Err(AuthError::Expired));
}

// proves: ADM-5.11
#[test]
fn without_keys_a_token_is_refused_not_awaited() {
    let bearer = headers(&[("authorization", &format!("Bearer {}", good(1, NOW + 60)))]);
    let got = decide(
        &Mode::Passport(passport()),
        &bearer,
        None,
        &KeySet::default(),
        at(NOW),
    );
    assert_eq!(got, Err(AuthError::NoKeys));
}

#[test]
fn the_token_is_taken_from_one_header_or_the_cookie() {
    let t = good(1, NOW + 60);
    let cookie = format!("a=b; session={t}; c=d");
    let (bearer, upper) = (format!("Bearer {t}"), format!("BEARER {t}"));
    let cases: &[(Sent<'_>, Option<AuthError>)] = &[
        (&[("authorization", &bearer)], None),
        (&[("authorization", &upper)], None),
        (&[("cookie", &cookie)], None),
        (
            &[("authorization", "Basic x"), ("cookie", &cookie)],
            Some(AuthError::MalformedHeader),
        ),
        (
            &[("authorization", &bearer), ("authorization", &bearer)],
            Some(AuthError::MalformedHeader),
        ),
        (
            &[("authorization", "Bearer")],
            Some(AuthError::MalformedHeader),
        ),
        (
            &[("cookie", &cookie), ("cookie", "session=x")],
            Some(AuthError::MalformedHeader),
        ),
        (
            &[("cookie", "sessions=x")],
            Some(AuthError::MissingCredentials),
        ),
        (&[], Some(AuthError::MissingCredentials)),
    ];
    for (sent, expected) in cases {
        let got = decide(
            &Mode::Passport(passport()),
            &headers(sent),
            None,
            &keys(),
            at(NOW),
        );
        assert_eq!(got.err(), *expected, "{sent:?}");
    }
}

#[test]
fn the_gate_remembers_tokens_rechecks_their_times_and_forgets_them_with_their_keys() {
    let telemetry = Telemetry::new("x", "");
    let gate = Gate::new(Mode::Passport(passport()), &telemetry);
    gate.set_keys(keys());
    let bearer = headers(&[("authorization", &format!("Bearer {}", good(1, NOW + 60)))]);
    let check = |now| gate.check(&bearer, None, at(now)).map(|i| i.subject);
    assert_eq!(check(NOW).as_deref(), Ok("ada"));
    assert_eq!(gate.cached_tokens(), 1);
    assert_eq!(check(NOW + 89).as_deref(), Ok("ada"));
    assert_eq!(check(NOW + 90), Err(AuthError::Expired));
    // The key is gone at the issuer: the cached token is worth nothing any more.
    gate.set_keys(KeySet::parse(&jwks(&[2])).unwrap());
    assert_eq!(check(NOW), Err(AuthError::UnknownKid));
    let text = telemetry.render();
    for line in [
        r#"auth_failures_total{reason="expired"} 1"#,
        r#"auth_failures_total{reason="unknown_kid"} 1"#,
    ] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn refusals_are_401_with_a_challenge_or_403_and_503_where_the_service_lacks_keys() {
    let invalid = Some("Bearer error=\"invalid_token\"");
    for (error, status, challenge, retry_after) in [
        (AuthError::Expired, 401, invalid, None),
        (AuthError::WrongType, 401, invalid, None),
        (AuthError::OperatorToken, 401, invalid, None),
        (AuthError::UnknownKid, 401, invalid, Some("30")),
        (AuthError::MissingCredentials, 401, Some("Bearer"), None),
        (
            AuthError::MalformedHeader,
            401,
            Some("Bearer error=\"invalid_request\""),
            None,
        ),
        (
            AuthError::MissingScope,
            403,
            Some("Bearer error=\"insufficient_scope\""),
            None,
        ),
        (AuthError::UntrustedPeer, 403, None, None),
        (AuthError::NoKeys, 503, None, Some("1")),
    ] {
        let problem = error.problem();
        assert_eq!(
            (problem.status().as_u16(), problem.code()),
            (status, error.reason())
        );
        let response = axum::response::IntoResponse::into_response(problem);
        let header = |name: &str| response.headers().get(name).map(|v| v.to_str().unwrap());
        assert_eq!(header("www-authenticate"), challenge, "{error:?}");
        assert_eq!(header("retry-after"), retry_after, "{error:?}");
    }
}

crate::settings! {
    struct Config {
        auth: AuthConfig;
    }
}

#[test]
fn a_mode_that_cannot_work_names_the_keys_that_are_wrong() {
    let load = |text: &str| {
        let file = Some(("x.toml".to_owned(), format!("[auth]\n{text}")));
        let sources = Sources {
            file,
            ..Sources::default()
        };
        let rules = |c: &Config| c.auth.to_mode().err().unwrap_or_default();
        sources
            .load::<Config>("X_", rules)
            .map(|l| l.config.auth.to_mode().unwrap())
    };
    let broken = |text: &str| {
        let errors = load(text).unwrap_err().0;
        errors.into_iter().map(|e| e.key).collect::<Vec<_>>()
    };
    assert!(matches!(load("").unwrap(), Mode::None));
    assert_eq!(broken("mode = 'ingress'"), ["auth.ingress.trusted_peers"]);
    assert_eq!(
        broken("mode = 'ingress'\ningress.trusted_peers = ['::1']\ningress.user_header = 'a b'"),
        ["auth.ingress.user_header"]
    );
    assert_eq!(
        broken("mode = 'passport'\npassport.issuer = 'http://far.test'\npassport.audience = 'a'"),
        ["auth.passport.issuer"]
    );
    assert_eq!(
        broken(
            "mode = 'passport'\npassport.issuer = 'https://i'\npassport.audience = 'a'\npassport.algorithms = []\npassport.token_types = []"
        ),
        ["auth.passport.algorithms", "auth.passport.token_types"]
    );
    for wrong in ["'/etc/x.token'", "'../x.token'", "'keys.redb'"] {
        let text = format!("operator_token_file = {wrong}");
        assert_eq!(broken(&text), ["auth.operator_token_file"], "{wrong}");
    }
    for wrong in [
        "algorithms = ['HS256']",
        "token_types = ['id']",
        "max_stale_secs = 1",
    ] {
        let text = format!("passport.{wrong}");
        let key = format!("auth.passport.{}", wrong.split(' ').next().unwrap());
        assert_eq!(broken(&text), [key], "{wrong}");
    }
    assert_eq!(
        broken("mode = 'passport'\npassport.jwks_url = 'ftp://x/'"),
        [
            "auth.passport.issuer",
            "auth.passport.audience",
            "auth.passport.jwks_url"
        ]
    );
    let sound = "mode = 'passport'\n[auth.passport]\nissuer = 'i'\naudience = 'a'\njwks_url = 'https://i/keys'";
    let Mode::Passport(p) = load(sound).unwrap() else {
        panic!("passport")
    };
    assert_eq!((p.leeway, p.cookie), (Duration::from_secs(30), None));
    assert_eq!(
        broken("ingress.trusted_peers = ['10.0.0.0/40']"),
        ["auth.ingress.trusted_peers"]
    );
}
