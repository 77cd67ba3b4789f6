//! Headers that a stranger sends: deadlines only shrink, correlation ids stay well-formed.

use std::time::{Duration, Instant, SystemTime};

use http::{HeaderMap, HeaderValue};
use ron_core::{corr::CorrId, deadline::Deadline};

pub fn run(values: (Vec<u8>, Vec<u8>, Vec<u8>)) {
    let mut headers = HeaderMap::new();
    let named = [
        ("request-timeout", values.0),
        ("deadline", values.1),
        ("x-corr-id", values.2),
    ];
    for (name, value) in named {
        if let Ok(value) = HeaderValue::from_bytes(&value) {
            headers.insert(name, value);
        }
    }
    let now = Instant::now();
    let granted = Deadline::after(now, Duration::from_secs(5));
    let (deadline, _) = Deadline::from_headers(&headers, now, SystemTime::UNIX_EPOCH, granted);
    assert!(deadline.instant() <= granted.instant());
    if let Some(id) = CorrId::from_headers(&headers) {
        assert!(HeaderValue::from_str(id.as_str()).is_ok());
    }
}
