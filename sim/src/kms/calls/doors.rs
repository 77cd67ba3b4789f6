//! Every door of ron-kms and what its caller needs, written down once more: from the documentation, not from the
//! service's own table, so that a slip there is seen.

/// A method and a path, and what a token must bring.
pub struct Door {
    pub method: &'static str,
    /// `{kid}` stands for a key.
    pub path: &'static str,
    pub scopes: &'static [&'static str],
    /// Its caller acts for a tenant.
    pub tenant: bool,
}

const fn of_tenant(
    method: &'static str,
    path: &'static str,
    scopes: &'static [&'static str],
) -> Door {
    Door {
        method,
        path,
        scopes,
        tenant: true,
    }
}

const fn of_all(method: &'static str, path: &'static str, scopes: &'static [&'static str]) -> Door {
    Door {
        method,
        path,
        scopes,
        tenant: false,
    }
}

pub const SIGN: &str = "/v1/kms/sign";
pub const KEYS: &str = "/v1/kms/keys";
pub const POLICY: &str = "/v1/kms/keys/{kid}/policy";
pub const SHUTDOWN: &str = "/api/v1/shutdown";
pub const RELOAD: &str = "/api/v1/reload";

#[rustfmt::skip]
pub const DOORS: &[Door] = &[
    of_tenant("POST", SIGN, &["kms:sign"]),
    of_tenant("POST", "/v1/kms/verify", &["kms:verify"]),
    of_tenant("POST", "/v1/kms/wrap", &["kms:wrap"]),
    of_tenant("POST", "/v1/kms/unwrap", &["kms:unwrap"]),
    of_tenant("POST", "/v1/kms/data-key", &["kms:wrap"]),
    of_tenant("POST", "/v1/kms/attest", &["kms:read"]),
    of_tenant("POST", KEYS, &["kms:rotate"]),
    of_tenant("GET", KEYS, &["kms:read"]),
    of_tenant("GET", "/v1/kms/keys/{kid}", &["kms:read"]),
    of_tenant("GET", "/v1/kms/keys/{kid}/versions/1", &["kms:read"]),
    of_tenant("POST", "/v1/kms/keys/{kid}/versions/1/disable", &["kms:rotate"]),
    of_tenant("POST", "/v1/kms/keys/{kid}/versions/1/enable", &["kms:rotate"]),
    of_tenant("POST", "/v1/kms/keys/{kid}/rotate", &["kms:rotate"]),
    of_tenant("POST", "/v1/kms/keys/{kid}/destroy", &["kms:rotate"]),
    of_tenant("POST", "/v1/kms/keys/{kid}/destroy/cancel", &["kms:rotate"]),
    of_tenant("PUT", POLICY, &["kms:rotate"]),
    of_tenant("POST", "/v1/kms/keys/{kid}/import", &["kms:rotate", "kms:unwrap"]),
    of_tenant("GET", "/v1/kms/jwks.json", &["kms:read"]),
    of_all("GET", "/v1/kms/audit/checkpoint", &["kms:audit"]),
    of_all("GET", "/v1/kms/audit/tile/0/000", &["kms:audit"]),
    of_all("GET", "/v1/kms/audit/proof/0", &["kms:audit"]),
    of_all("GET", "/v1/kms/openapi.json", &[]),
    of_all("POST", SHUTDOWN, &[ADMIN]),
    of_all("POST", RELOAD, &[ADMIN]),
];

/// What operators need; nobody who may not shut the service down has it.
pub const ADMIN: &str = "ops:admin";

/// All that are there to have, but the operator's.
pub const SCOPES: &[&str] = &[
    "kms:sign",
    "kms:verify",
    "kms:wrap",
    "kms:unwrap",
    "kms:rotate",
    "kms:read",
    "kms:audit",
];

/// The door at this place of [`DOORS`].
pub fn find(method: &str, path: &str) -> usize {
    let found = DOORS
        .iter()
        .position(|door| door.method == method && door.path == path);
    found.expect("a door of the table")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_of_the_service_is_a_door() {
        for route in ron_kms::api::endpoints() {
            let parts = |path: &str| path.split('/').count();
            let known = DOORS.iter().any(|door| {
                let fits = |(a, b): (&str, &str)| a == b || b.starts_with('{');
                let mut pairs = door.path.split('/').zip(route.path.split('/'));
                let whole = parts(door.path) == parts(route.path) || route.path.contains("{*");
                door.method == route.method.as_str() && whole && pairs.all(fits)
            });
            assert!(known, "{} {}", route.method, route.path);
        }
    }
}
