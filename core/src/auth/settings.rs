//! The `auth.*` keys, and the mode they describe.

use std::time::Duration;

use http::HeaderName;

use super::{Cidr, Ingress, Mode, Passport};
use crate::config::Broken;

crate::choices! {
    /// How callers are identified.
    pub enum AuthMode { None = "none", Ingress = "ingress", Passport = "passport" }
}

crate::settings! {
    /// Headers that a trusted ingress sets.
    pub struct IngressConfig {
        /// Peers whose identity headers are believed.
        trusted_peers: Vec<Cidr> = vec![], restart;
        /// Header that names the caller.
        user_header: String = "x-user".to_owned(), restart;
        /// Header that lists the caller's groups, which become scopes.
        groups_header: String = "x-groups".to_owned(), restart;
        /// Header that names the caller's tenant.
        tenant_header: String = "x-tenant".to_owned(), restart;
    }
}

crate::settings! {
    /// Signed tokens.
    pub struct PassportConfig {
        /// The `iss` that tokens must carry.
        issuer: String = String::new(), restart;
        /// The `aud` that tokens must carry.
        audience: String = String::new(), restart;
        /// Where the issuer publishes its keys.
        jwks_url: String = String::new(), restart;
        /// How far the clocks of issuer and service may be apart.
        leeway_secs: u64 = 30 => 0..=300, restart;
        /// Cookie that may carry the token; empty for none.
        cookie: String = String::new(), restart;
        /// Time for one fetch of the keys.
        refresh_timeout_ms: u64 = 2_000 => 100..=10_000, restart;
    }
}

crate::settings! {
    /// Who may call.
    pub struct AuthConfig {
        /// How callers are identified; `none` is allowed on loopback only.
        mode: AuthMode = AuthMode::None, restart;
        ingress: IngressConfig;
        passport: PassportConfig;
    }
}

impl AuthConfig {
    /// The mode, or all keys that keep it from working.
    pub fn to_mode(&self) -> Result<Mode, Vec<Broken>> {
        match self.mode {
            AuthMode::None => Ok(Mode::None),
            AuthMode::Ingress => self.ingress(),
            AuthMode::Passport => self.passport(),
        }
    }

    fn ingress(&self) -> Result<Mode, Vec<Broken>> {
        let (mut broken, i) = (Vec::new(), &self.ingress);
        if i.trusted_peers.is_empty() {
            let reason = "must name the ingress when auth.mode = \"ingress\"".to_owned();
            broken.push(Broken {
                key: "auth.ingress.trusted_peers",
                reason,
            });
        }
        let mut header = |key: &'static str, name: &str| {
            let parsed = HeaderName::from_bytes(name.as_bytes());
            if parsed.is_err() {
                let reason = "expected a header name".to_owned();
                broken.push(Broken { key, reason });
            }
            parsed.unwrap_or(HeaderName::from_static("x-user"))
        };
        let mode = Mode::Ingress(Ingress {
            user_header: header("auth.ingress.user_header", &i.user_header),
            groups_header: header("auth.ingress.groups_header", &i.groups_header),
            tenant_header: header("auth.ingress.tenant_header", &i.tenant_header),
            trusted: i.trusted_peers.clone(),
        });
        if broken.is_empty() {
            Ok(mode)
        } else {
            Err(broken)
        }
    }

    fn passport(&self) -> Result<Mode, Vec<Broken>> {
        let p = &self.passport;
        let mut broken = Vec::new();
        for (key, value) in [
            ("auth.passport.issuer", &p.issuer),
            ("auth.passport.audience", &p.audience),
        ] {
            if value.is_empty() {
                let reason = "must be set when auth.mode = \"passport\"".to_owned();
                broken.push(Broken { key, reason });
            }
        }
        let url = p.jwks_url.parse::<http::Uri>();
        if !url
            .is_ok_and(|u| u.host().is_some() && matches!(u.scheme_str(), Some("http" | "https")))
        {
            broken.push(Broken {
                key: "auth.passport.jwks_url",
                reason: "expected an http or https address when auth.mode = \"passport\""
                    .to_owned(),
            });
        }
        if !broken.is_empty() {
            return Err(broken);
        }
        Ok(Mode::Passport(Passport {
            issuer: p.issuer.clone(),
            audience: p.audience.clone(),
            leeway: Duration::from_secs(p.leeway_secs),
            cookie: Some(p.cookie.clone()).filter(|name| !name.is_empty()),
        }))
    }
}
