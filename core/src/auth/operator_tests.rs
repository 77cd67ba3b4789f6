//! Who the operator's token lets in, and from where.

use http::HeaderValue;

use super::*;

fn headers(values: &[&str]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for value in values {
        let value = HeaderValue::from_str(value).unwrap();
        headers.append(header::AUTHORIZATION, value);
    }
    headers
}

#[test]
fn an_operators_token_is_told_from_others_by_its_prefix() {
    for (values, expected) in [
        (&["Bearer ron-operator-12"][..], Some("ron-operator-12")),
        (&["bearer  ron-operator-12"], Some("ron-operator-12")),
        (&["Basic ron-operator-12"], None),
        (&["Bearer eyJhbGciOiJFZERTQSJ9.e30.AA"], None),
        (&["Bearer ron-operator-12", "Bearer ron-operator-12"], None),
        (&["ron-operator-12"], None),
        (&[], None),
    ] {
        assert_eq!(presented(&headers(values)), expected, "{values:?}");
    }
}

#[test]
fn it_counts_from_this_machine_alone_for_the_operators_door_alone_and_only_if_it_is_the_one() {
    let token = "ron-operator-12";
    let hash = blake3::hash(token.as_bytes());
    let ask = |token, peer: &str, expected| identify(token, peer.parse().ok(), expected);
    for here in ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"] {
        let operator = ask(token, here, Some(&hash)).unwrap();
        assert!(operator.is_authenticated() && operator.tenant.is_none());
        assert_eq!(operator.require(ADMIN_SCOPE), Ok(()));
        assert_eq!(operator.require("kms:sign"), Err(AuthError::MissingScope));
    }
    for away in ["10.0.0.1", "0.0.0.0", "::2", ""] {
        let got = ask(token, away, Some(&hash));
        assert_eq!(got, Err(AuthError::UntrustedPeer), "{away}");
    }
    for wrong in ["ron-operator-", "ron-operator-13", "ron-operator-123"] {
        let got = ask(wrong, "::1", Some(&hash));
        assert_eq!(got, Err(AuthError::OperatorToken), "{wrong}");
    }
    let got = ask(token, "::1", None);
    assert_eq!(
        got,
        Err(AuthError::OperatorToken),
        "before one is drawn, none is right"
    );
}
