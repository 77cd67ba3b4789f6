//! What the server refuses by itself, before any route is asked: each with its status, its code and its count.
//!
//! Where hyper answers alone (a head that is no HTTP, or too much of it), its bare answer is replaced by one of these.

use std::{fmt::Write as _, time::Duration};

use http::StatusCode;

use crate::problem::Problem;

macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident = $status:ident, $reason:literal, $detail:literal;)+) => {
        /// Why the server refused a request or a connection.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Refusal {
            $($(#[$doc])* $name,)+
        }

        impl Refusal {
            pub const ALL: &[Refusal] = &[$(Refusal::$name,)+];

            /// The `code` of the problem and the `reason` of the counter.
            pub fn reason(self) -> &'static str {
                match self {
                    $(Refusal::$name => $reason,)+
                }
            }

            fn parts(self) -> (StatusCode, &'static str) {
                match self {
                    $(Refusal::$name => (StatusCode::$status, $detail),)+
                }
            }
        }
    };
}

refusals! {
    /// `Host` is absent, there twice or malformed, or contradicts the request's own authority.
    BadHost = BAD_REQUEST, "bad_host", "one well-formed Host is needed, the same as the request's authority";
    ForeignHost = MISDIRECTED_REQUEST, "foreign_host", "this server does not answer under that name; `http.hosts` lists the names";
    ForeignOrigin = FORBIDDEN, "foreign_origin", "pages of that origin may not ask; `http.origins` lists those that may";
    Malformed = BAD_REQUEST, "malformed_request", "this is not an HTTP request";
    UriTooLong = URI_TOO_LONG, "uri_too_long", "the request line is too long";
    HeadTooLarge = REQUEST_HEADER_FIELDS_TOO_LARGE, "head_too_large", "the request head is too large";
    TransferEncoding = NOT_IMPLEMENTED, "unsupported_transfer_encoding", "the only transfer coding is `chunked`, alone";
    /// Every connection is taken, and none is idle.
    Connections = SERVICE_UNAVAILABLE, "too_many_connections", "every connection is taken";
    /// All that one address may have.
    PeerConnections = TOO_MANY_REQUESTS, "too_many_connections_of_peer", "this address has as many connections as it may";
    /// Too many HTTP/2 frames that carry no request; told by ENHANCE_YOUR_CALM.
    Flood = TOO_MANY_REQUESTS, "http2_flood", "too many frames without a request";
}

impl Refusal {
    /// Which of hyper's own answers this is.
    pub(super) fn of_parser(answer: &[u8]) -> Refusal {
        match answer.get(9..12) {
            Some(b"431") => Refusal::HeadTooLarge,
            Some(b"414") => Refusal::UriTooLong,
            _ => Refusal::Malformed,
        }
    }

    pub fn problem(self) -> Problem {
        let (status, detail) = self.parts();
        let problem = Problem::new(status, self.reason()).detail(detail);
        match self {
            Refusal::Connections | Refusal::PeerConnections => {
                problem.retry_after(Duration::from_secs(1))
            }
            _ => problem,
        }
    }

    /// The whole HTTP/1.1 answer, after which the connection closes.
    pub(super) fn answer(self, corr_id: &str) -> Vec<u8> {
        let problem = self.problem();
        let body = problem.body(corr_id);
        let response = problem.into_response_with(corr_id);
        let mut head = format!("HTTP/1.1 {}\r\n", response.status());
        for (name, value) in response.headers() {
            let value = value.to_str().unwrap_or_default();
            let _ = write!(head, "{name}: {value}\r\n");
        }
        let _ = write!(
            head,
            "x-corr-id: {corr_id}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        head.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_and_carries_the_problem() {
        let answer = String::from_utf8(Refusal::Connections.answer("c-1")).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let body_json: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(body_json["code"], "too_many_connections");
        assert_eq!(body_json["corr_id"], "c-1");
        let lines: Vec<_> = head.split("\r\n").collect();
        assert_eq!(lines[0], "HTTP/1.1 503 Service Unavailable");
        for line in [
            "content-type: application/problem+json",
            "retry-after: 1",
            "x-corr-id: c-1",
            "connection: close",
            &format!("content-length: {}", body.len()),
        ] {
            assert!(lines.contains(&line), "{line} in {head}");
        }
    }

    #[test]
    fn reasons_are_told_apart_and_the_parsers_answers_are_known() {
        let mut reasons: Vec<_> = Refusal::ALL.iter().map(|r| r.reason()).collect();
        reasons.sort_unstable();
        reasons.dedup();
        assert_eq!(reasons.len(), Refusal::ALL.len());
        for (line, expected) in [
            ("HTTP/1.1 400 Bad Request\r\n", Refusal::Malformed),
            ("HTTP/1.1 414 URI Too Long\r\n", Refusal::UriTooLong),
            ("HTTP/1.1 431 Request Header", Refusal::HeadTooLarge),
            ("", Refusal::Malformed),
        ] {
            assert_eq!(Refusal::of_parser(line.as_bytes()), expected, "{line}");
        }
    }
}
