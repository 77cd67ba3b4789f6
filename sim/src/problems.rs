//! What every refusal must look like, read from the answer alone: RFC 9457, a code, and honest advice about trying again.

use http::{HeaderMap, header};
use serde_json::Value;

/// Codes of 503 that time alone does not mend.
const FOR_GOOD: &[&str] = &["store_behind_log", "audit_integrity"];

/// What is wrong with a refusal, if anything is.
pub fn fault(status: u16, headers: &HeaderMap, body: &[u8]) -> Option<String> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    if text(header::CONTENT_TYPE) != Some("application/problem+json") {
        return Some(format!("{status} is no problem document"));
    }
    let problem: Value = serde_json::from_slice(body).unwrap_or_default();
    let Some(code) = problem["code"].as_str().filter(|code| !code.is_empty()) else {
        return Some(format!("{status} has no code"));
    };
    let wrong = |what: &str| Some(format!("{status} {code}: {what}"));
    if problem["status"].as_u64() != Some(status.into()) {
        return wrong("the body tells another status");
    }
    let id = problem["corr_id"].as_str().unwrap_or_default();
    if id.is_empty() || text(header::HeaderName::from_static("x-corr-id")) != Some(id) {
        return wrong("the body and the header have no correlation id in common");
    }
    let Some(retryable) = problem["retryable"].as_bool() else {
        return wrong("nothing is said about trying again");
    };
    let after = text(header::RETRY_AFTER).map(str::parse::<u64>);
    if matches!(&after, Some(Err(_) | Ok(0))) {
        return wrong("Retry-After is no number of seconds");
    }
    let passes = match status {
        429 | 503 => !FOR_GOOD.contains(&code),
        408 | 425 | 502 | 504 if retryable => return None,
        408 | 425 | 502 | 504 => return wrong("it is not called retryable"),
        // Refused for now: it says when to come back.
        _ => after.is_some(),
    };
    match (passes, retryable, after.is_some()) {
        (true, true, true) | (false, false, false) => None,
        (true, _, false) => wrong("it passes, and Retry-After is missing"),
        (true, false, _) => wrong("it passes, and is not called retryable"),
        (false, ..) => wrong("trying again does not help, and it says otherwise"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status: u16, after: Option<&'static str>, body: &str) -> Option<String> {
        let mut headers = HeaderMap::new();
        let kind = http::HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, kind);
        headers.insert("x-corr-id", http::HeaderValue::from_static("c"));
        if let Some(after) = after {
            let after = http::HeaderValue::from_static(after);
            headers.insert(header::RETRY_AFTER, after);
        }
        fault(status, &headers, body.as_bytes())
    }

    #[test]
    fn sound_refusals_pass_and_each_fault_is_named() {
        let body = |status: u16, code: &str, retryable: bool| {
            format!(
                r#"{{"status":{status},"code":"{code}","retryable":{retryable},"corr_id":"c"}}"#
            )
        };
        assert_eq!(refusal(429, Some("1"), &body(429, "busy", true)), None);
        assert_eq!(refusal(404, None, &body(404, "key_not_found", false)), None);
        assert_eq!(refusal(504, None, &body(504, "timeout", true)), None);
        assert_eq!(
            refusal(409, Some("1"), &body(409, "not_covered", true)),
            None
        );
        let for_good = body(503, "audit_integrity", false);
        assert_eq!(refusal(503, None, &for_good), None);
        for (status, after, body, says) in [
            (429, None, body(429, "busy", true), "Retry-After is missing"),
            (
                503,
                Some("1"),
                body(503, "draining", false),
                "not called retryable",
            ),
            (
                503,
                Some("1"),
                body(500, "draining", true),
                "another status",
            ),
            (
                404,
                None,
                body(404, "key_not_found", true),
                "says otherwise",
            ),
            (
                504,
                None,
                body(504, "timeout", false),
                "not called retryable",
            ),
            (
                429,
                Some("0"),
                body(429, "busy", true),
                "no number of seconds",
            ),
            (429, Some("1"), "{}".to_owned(), "has no code"),
        ] {
            let fault = refusal(status, after, &body).unwrap_or_default();
            assert!(fault.contains(says), "{fault:?} should say {says:?}");
        }
        let bare = fault(404, &HeaderMap::new(), b"");
        assert!(bare.is_some_and(|fault| fault.contains("no problem document")));
    }
}
