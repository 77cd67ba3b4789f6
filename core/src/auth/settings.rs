//! The `auth.*` keys, and the mode they describe.

use std::time::Duration;

use http::HeaderName;

use super::{Cidr, Ingress, KeySource, Mode, Passport, fetch::is_safe};
use crate::{config::Broken, disk_path};

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

crate::choices! {
    /// How a token may be signed. Shared secrets are not among them: who can check such a token can sign one.
    pub enum SignatureAlg {
        Es256 = "ES256", Es384 = "ES384", EdDsa = "EdDSA",
        Ps256 = "PS256", Ps384 = "PS384", Ps512 = "PS512",
        Rs256 = "RS256", Rs384 = "RS384", Rs512 = "RS512",
    }
}

crate::choices! {
    /// What the header's `typ` may say.
    pub enum TokenType { AtJwt = "at+jwt", Jwt = "JWT", Absent = "absent" }
}

const ALGORITHMS: [SignatureAlg; 9] = [
    SignatureAlg::Es256,
    SignatureAlg::Es384,
    SignatureAlg::EdDsa,
    SignatureAlg::Ps256,
    SignatureAlg::Ps384,
    SignatureAlg::Ps512,
    SignatureAlg::Rs256,
    SignatureAlg::Rs384,
    SignatureAlg::Rs512,
];

const TOKEN_TYPES: [TokenType; 3] = [TokenType::AtJwt, TokenType::Jwt, TokenType::Absent];

crate::settings! {
    /// Signed tokens.
    pub struct PassportConfig {
        /// The `iss` that tokens must carry; below it lies the issuer's metadata, which names its keys.
        issuer: String = String::new(), restart;
        /// The `aud` that tokens must carry.
        audience: String = String::new(), restart;
        /// Where the issuer publishes its keys; empty: where its metadata says.
        jwks_url: String = String::new(), restart;
        /// Keys may come over plain HTTP from other machines.
        allow_http: bool = false, restart;
        /// How tokens may be signed.
        algorithms: Vec<SignatureAlg> = ALGORITHMS.to_vec(), restart;
        /// What the header's `typ` may say; `at+jwt` alone is the strictest (RFC 9068).
        token_types: Vec<TokenType> = TOKEN_TYPES.to_vec(), restart;
        /// How far the clocks of issuer and service may be apart.
        leeway_secs: u64 = 30 => 0..=300, restart;
        /// Cookie that may carry the token; empty for none.
        cookie: String = String::new(), restart;
        /// Time for one fetch of the keys.
        refresh_timeout_ms: u64 = 2_000 => 100..=10_000, restart;
        /// How long keys count as fresh if the issuer does not say.
        refresh_secs: u64 = 300 => 60..=86_400, restart;
        /// How long keys are used that cannot be renewed; then nobody is let in until they are.
        max_stale_secs: u64 = 3_600 => 60..=604_800, restart;
    }
}

crate::settings! {
    /// Who may call.
    pub struct AuthConfig {
        /// How callers are identified; `none` is allowed on loopback only.
        mode: AuthMode = AuthMode::None, restart;
        /// File in the data folder for the token that lets its reader reload and stop this process; empty for none.
        operator_token_file: String = "operator.token".to_owned(), restart;
        ingress: IngressConfig;
        passport: PassportConfig;
    }
}

impl PassportConfig {
    /// Where the keys come from.
    pub(super) fn key_source(&self) -> Result<KeySource, Broken> {
        let safe = |key, text: &str| {
            match text.parse() {
            Ok(url) if is_safe(&url, self.allow_http) => Ok(url),
            _ => Err(Broken {
                key,
                reason: "expected an https address when auth.mode = \"passport\", or http on this machine, or auth.passport.allow_http".to_owned(),
            }),
        }
        };
        if !self.jwks_url.is_empty() {
            return safe("auth.passport.jwks_url", &self.jwks_url).map(KeySource::Jwks);
        }
        let below = self.issuer.trim_end_matches('/');
        let metadata = format!("{below}/.well-known/openid-configuration");
        Ok(KeySource::Discovery {
            issuer: self.issuer.clone(),
            metadata: safe("auth.passport.issuer", &metadata)?,
            allow_http: self.allow_http,
        })
    }
}

impl AuthConfig {
    /// The mode, or all keys that keep it from working.
    pub fn to_mode(&self) -> Result<Mode, Vec<Broken>> {
        let file = &self.operator_token_file;
        // Its own ending, so that it can never take the place of a file that matters.
        let sound = disk_path::check(file).is_ok() && file.ends_with(".token");
        if !(file.is_empty() || sound) {
            return Err(vec![Broken {
                key: "auth.operator_token_file",
                reason: "expected a path below the data folder that ends in `.token`".to_owned(),
            }]);
        }
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
        for (key, empty) in [
            ("auth.passport.algorithms", p.algorithms.is_empty()),
            ("auth.passport.token_types", p.token_types.is_empty()),
        ] {
            if empty {
                let reason = "must name at least one".to_owned();
                broken.push(Broken { key, reason });
            }
        }
        if !(p.issuer.is_empty() && p.jwks_url.is_empty()) {
            broken.extend(p.key_source().err());
        }
        if !broken.is_empty() {
            return Err(broken);
        }
        Ok(Mode::Passport(Passport {
            issuer: p.issuer.clone(),
            audience: p.audience.clone(),
            leeway: Duration::from_secs(p.leeway_secs),
            cookie: Some(p.cookie.clone()).filter(|name| !name.is_empty()),
            algorithms: p.algorithms.clone(),
            types: p.token_types.clone(),
        }))
    }
}
