//! Refusals: each code with its status, written down once more from the interface's description.
//!
//! A slip in the service's own table is seen because this one does not share it. Always: a refusal that passes by
//! itself says so, and when to come back; no other does.

use serde_json::{Value, json};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub code: &'static str,
    /// The field that is wrong, where one is.
    pub path: Option<String>,
    /// The scope that is missing.
    pub scope: Option<&'static str>,
}

const STATUSES: &[(u16, &[&str])] = &[
    (
        400,
        &[
            "json_syntax",
            "base64_invalid",
            "invalid_path",
            "invalid_query",
            "invalid_request",
            "prehash_invalid",
            "min_version_out_of_range",
        ],
    ),
    (403, &["missing_scope", "tenant_forbidden"]),
    (
        404,
        &[
            "key_not_found",
            "version_not_found",
            "record_not_found",
            "not_found",
        ],
    ),
    (405, &["method_not_allowed"]),
    (
        409,
        &[
            "version_disabled",
            "destroy_scheduled",
            "version_destroyed",
            "below_min_version",
            "wrong_use",
            "not_scheduled",
            "too_many_versions",
            "too_many_keys",
            "head_moved",
            "op_id_conflict",
            "not_covered",
        ],
    ),
    (413, &["body_too_large", "too_long", "batch_too_large"]),
    (415, &["unsupported_media_type", "unsupported_encoding"]),
    (
        422,
        &[
            "unknown_field",
            "missing_field",
            "invalid_field",
            "alg_unknown",
            "secret_invalid",
            "blob_invalid",
            "rotate_after_too_short",
        ],
    ),
];

/// The one that only time mends.
const PASSES: &str = "not_covered";

pub fn refusal(code: &'static str) -> Refusal {
    Refusal {
        code,
        path: None,
        scope: None,
    }
}

impl Refusal {
    pub fn at(code: &'static str, path: &str) -> Refusal {
        Refusal {
            path: Some(path.to_owned()),
            ..refusal(code)
        }
    }

    pub fn status(&self) -> u16 {
        let found = STATUSES
            .iter()
            .find(|(_, codes)| codes.contains(&self.code));
        found.expect("every code has its status").0
    }

    pub fn passes(&self) -> bool {
        self.code == PASSES
    }

    /// The whole document, but for the words and the correlation id, which are as they came.
    pub fn document(&self, came: &Value) -> Value {
        let status = self.status();
        let title = http::StatusCode::from_u16(status)
            .ok()
            .and_then(|status| status.canonical_reason());
        let mut document = json!({
            "type": format!("urn:ron:problem:{}", self.code),
            "title": title,
            "status": status,
            "detail": came["detail"],
            "code": self.code,
            "retryable": self.passes(),
            "corr_id": came["corr_id"],
        });
        if let Some(path) = &self.path {
            document["path"] = json!(path);
        }
        if let Some(scope) = self.scope {
            document["scope"] = json!(scope);
        }
        if self.code == "json_syntax" {
            document["line"] = came["line"].clone();
            document["column"] = came["column"].clone();
        }
        document
    }
}
