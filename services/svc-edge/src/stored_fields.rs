//! Which fields of an answer are kept, which go to the origin, and how a 304 renews the kept ones (RFC 9111, 3.1 and 3.2;
//! RFC 9110, 7.6.1).

use http::{HeaderMap, HeaderName, header};

/// Fields that speak of one connection only.
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// Fields that describe the kept body. A 304 has none, so it cannot change them.
const OF_THE_BODY: [HeaderName; 4] = [
    header::CONTENT_LENGTH,
    header::CONTENT_ENCODING,
    header::CONTENT_TYPE,
    header::CONTENT_RANGE,
];

/// Takes away what must not travel further or be kept: the fields of one connection, and those that `Connection` names.
pub fn end_to_end(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
}

/// What is kept of an answer. `Age` counts anew from here.
pub fn to_store(mut answer: HeaderMap) -> HeaderMap {
    end_to_end(&mut answer);
    answer.remove(header::AGE);
    answer.remove(header::TRAILER);
    answer
}

/// A 304 confirmed what is stored: each field it brings replaces the stored ones of its name.
pub fn renew(stored: &mut HeaderMap, confirmed: HeaderMap) {
    let confirmed = to_store(confirmed);
    for name in confirmed.keys() {
        if OF_THE_BODY.contains(name) {
            continue;
        }
        stored.remove(name);
        for value in confirmed.get_all(name) {
            stored.append(name.clone(), value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn what_belongs_to_a_connection_is_not_kept() {
        let mut sent: Vec<(&'static str, &str)> = HOP_BY_HOP.map(|name| (name, "x")).to_vec();
        sent[0].1 = "close, X-Mine , bad name,";
        sent.extend([
            ("x-mine", "1"),
            ("etag", "\"a\""),
            ("set-cookie", "a"),
            ("set-cookie", "b"),
            ("age", "7"),
        ]);
        let kept = to_store(headers(&sent));
        assert_eq!(
            kept,
            headers(&[("etag", "\"a\""), ("set-cookie", "a"), ("set-cookie", "b")])
        );
    }

    #[test]
    fn a_confirmation_replaces_what_it_names_and_leaves_the_body_alone() {
        let mut stored = headers(&[
            ("etag", "\"a\""),
            ("cache-control", "max-age=1"),
            ("cache-control", "public"),
            ("content-type", "text/plain"),
            ("content-length", "5"),
            ("x-left", "alone"),
        ]);
        let confirmed = headers(&[
            ("cache-control", "max-age=2"),
            ("x-new", "1"),
            ("x-new", "2"),
            ("content-type", "text/html"),
            ("content-length", "0"),
            ("content-encoding", "gzip"),
            ("connection", "x-gone"),
            ("x-gone", "1"),
        ]);
        renew(&mut stored, confirmed);
        let wanted = headers(&[
            ("etag", "\"a\""),
            ("cache-control", "max-age=2"),
            ("content-type", "text/plain"),
            ("content-length", "5"),
            ("x-left", "alone"),
            ("x-new", "1"),
            ("x-new", "2"),
        ]);
        assert_eq!(stored, wanted);
    }
}
