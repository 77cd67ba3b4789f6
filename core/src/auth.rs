//! Who is calling: a pure decision over headers, peer address, a snapshot of keys and the wall time.
//!
//! No I/O happens in the request path: keys are fetched by one background task ([`refresh_loop`]) and read as
//! a snapshot. Every refusal has a typed reason, counted in `auth_failures_total{reason}`; what the client
//! is told never says more than that reason. A service starts with [`Authenticator::open`].

mod authenticator;
mod cidr;
mod fetch;
mod gate;
mod jwt;
mod keys;
mod operator;
mod refresh;
mod settings;
mod token_cache;

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    time::{Duration, SystemTime},
};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

pub use authenticator::{Authenticator, declare};
pub use cidr::Cidr;
pub use fetch::{KeySource, MAX_ANSWER_BYTES};
pub use gate::Gate;
pub use jwt::Verified;
pub use keys::{JwksError, KeySet, KidHash};
pub use operator::OPERATOR_PREFIX;
pub use refresh::{JwksCache, JwksPolicy, Next, UNKNOWN_KID_COOLDOWN, refresh_loop};
pub use settings::{AuthConfig, AuthMode, IngressConfig, PassportConfig, SignatureAlg, TokenType};
pub use token_cache::{TokenCache, TokenHash};

use crate::problem::Problem;

/// How callers are identified.
#[derive(Clone, Debug)]
pub enum Mode {
    /// Not at all. For development: only on a loopback address, see [`check_bind`].
    None,
    /// By headers that a trusted ingress sets.
    Ingress(Ingress),
    /// By a signed bearer token.
    Passport(Passport),
}

#[derive(Clone, Debug)]
pub struct Ingress {
    pub user_header: HeaderName,
    /// Its comma-separated values become the caller's scopes.
    pub groups_header: HeaderName,
    pub tenant_header: HeaderName,
    /// Headers from anyone else prove nothing.
    pub trusted: Vec<Cidr>,
}

#[derive(Clone, Debug)]
pub struct Passport {
    pub issuer: String,
    pub audience: String,
    /// How far the clocks of issuer and service may be apart.
    pub leeway: Duration,
    /// A cookie that may carry the token instead of `Authorization`.
    pub cookie: Option<String>,
    /// A token is checked with one of these, and only if its key is for it.
    pub algorithms: Vec<SignatureAlg>,
    /// The kinds of token that count as access tokens.
    pub types: Vec<TokenType>,
}

impl Default for Passport {
    fn default() -> Self {
        let config = PassportConfig::default();
        Passport {
            issuer: String::new(),
            audience: String::new(),
            leeway: Duration::from_secs(config.leeway_secs),
            cookie: None,
            algorithms: config.algorithms,
            types: config.token_types,
        }
    }
}

/// No clock is trusted to be further off than this, whatever the configuration says.
pub const MAX_LEEWAY: Duration = Duration::from_secs(300);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    pub subject: String,
    pub tenant: Option<String>,
    pub scopes: BTreeSet<String>,
    pub via: Via,
}

/// What vouches for an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Via {
    /// Nothing: mode `none`.
    Nobody,
    Ingress,
    Passport,
    /// The token that the process wrote to its own data folder.
    Operator,
}

impl Identity {
    /// In mode `none` nothing is checked, so every scope is there.
    pub fn has_scope(&self, scope: &str) -> bool {
        self.via == Via::Nobody || self.scopes.contains(scope)
    }

    pub fn require(&self, scope: &str) -> Result<(), AuthError> {
        if self.has_scope(scope) {
            Ok(())
        } else {
            Err(AuthError::MissingScope)
        }
    }

    pub fn is_authenticated(&self) -> bool {
        self.via != Via::Nobody
    }
}

/// Why a caller is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    #[error("credentials are missing")]
    MissingCredentials,
    #[error("the credentials header is malformed")]
    MalformedHeader,
    #[error("identity headers are accepted from the ingress only")]
    UntrustedPeer,
    #[error("the token is malformed")]
    MalformedToken,
    #[error("an unsigned token is not accepted")]
    AlgNone,
    #[error("the token is not of a kind that is accepted")]
    WrongType,
    #[error("the token's algorithm is not accepted")]
    AlgUnknown,
    #[error("the token's algorithm does not belong to its key")]
    AlgKeyMismatch,
    #[error("the token's key is unknown")]
    UnknownKid,
    #[error("no keys are available to check the token with")]
    NoKeys,
    #[error("the token's signature is wrong")]
    BadSignature,
    #[error("the token has expired")]
    Expired,
    #[error("the token is not valid yet")]
    NotYetValid,
    #[error("the token has another issuer")]
    IssuerMismatch,
    #[error("the token is for another audience")]
    AudienceMismatch,
    #[error("the operator's token is not the one of this start")]
    OperatorToken,
    #[error("a required scope is missing")]
    MissingScope,
}

impl AuthError {
    /// All that a bearer token can be refused for.
    pub const OF_TOKENS: &[AuthError] = &[
        AuthError::MissingCredentials,
        AuthError::MalformedHeader,
        AuthError::MalformedToken,
        AuthError::AlgNone,
        AuthError::AlgUnknown,
        AuthError::AlgKeyMismatch,
        AuthError::UnknownKid,
        AuthError::NoKeys,
        AuthError::BadSignature,
        AuthError::Expired,
        AuthError::NotYetValid,
        AuthError::IssuerMismatch,
        AuthError::AudienceMismatch,
        AuthError::WrongType,
    ];

    /// The `reason` label.
    pub fn reason(&self) -> &'static str {
        match self {
            AuthError::MissingCredentials => "missing_credentials",
            AuthError::MalformedHeader => "malformed_header",
            AuthError::UntrustedPeer => "untrusted_peer",
            AuthError::MalformedToken => "malformed_token",
            AuthError::AlgNone => "alg_none",
            AuthError::WrongType => "wrong_type",
            AuthError::AlgUnknown => "alg_unknown",
            AuthError::AlgKeyMismatch => "alg_key_mismatch",
            AuthError::UnknownKid => "unknown_kid",
            AuthError::NoKeys => "no_keys",
            AuthError::BadSignature => "bad_signature",
            AuthError::Expired => "expired",
            AuthError::NotYetValid => "not_yet_valid",
            AuthError::IssuerMismatch => "issuer_mismatch",
            AuthError::AudienceMismatch => "audience_mismatch",
            AuthError::OperatorToken => "operator_token",
            AuthError::MissingScope => "missing_scope",
        }
    }

    /// What RFC 6750 has a refusal say. `None`: the caller's token is not at fault.
    fn challenge(&self) -> Option<&'static str> {
        match self {
            AuthError::MissingCredentials => Some("Bearer"),
            AuthError::MalformedHeader => Some("Bearer error=\"invalid_request\""),
            AuthError::MissingScope => Some("Bearer error=\"insufficient_scope\""),
            AuthError::UntrustedPeer | AuthError::NoKeys => None,
            _ => Some("Bearer error=\"invalid_token\""),
        }
    }

    pub fn problem(&self) -> Problem {
        let status = match self {
            AuthError::MissingScope | AuthError::UntrustedPeer => StatusCode::FORBIDDEN,
            // The token may be fine, and a client told 401 would throw it away: it is the service that
            // lacks something, and says so.
            AuthError::NoKeys => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::UNAUTHORIZED,
        };
        let mut problem = Problem::new(status, self.reason()).detail(self);
        if let Some(challenge) = self.challenge() {
            let challenge = HeaderValue::from_static(challenge);
            problem = problem.header(header::WWW_AUTHENTICATE, challenge);
        }
        match self {
            // By then the issuer was asked again.
            AuthError::UnknownKid => problem.retry_after(UNKNOWN_KID_COOLDOWN),
            _ => problem,
        }
    }
}

/// Mode `none` on an address that others can reach would be an open door.
pub fn check_bind(mode: &Mode, bind: SocketAddr) -> Result<(), String> {
    match mode {
        Mode::None if !bind.ip().to_canonical().is_loopback() => Err(format!(
            "auth.mode = \"none\" is allowed on a loopback address only, not on {bind}"
        )),
        _ => Ok(()),
    }
}

/// Identifies the caller, or says why not.
pub fn decide(
    mode: &Mode,
    headers: &HeaderMap,
    peer: Option<IpAddr>,
    keys: &KeySet,
    now: SystemTime,
) -> Result<Identity, AuthError> {
    match mode {
        Mode::None => Ok(Identity {
            subject: "anonymous".to_owned(),
            tenant: None,
            scopes: BTreeSet::new(),
            via: Via::Nobody,
        }),
        Mode::Ingress(ingress) => ingress.identify(headers, peer),
        Mode::Passport(passport) => {
            let token = passport.token(headers)?;
            let verified = jwt::verify(token, passport, keys)?;
            verified.check_time(now, passport.leeway)?;
            Ok(verified.identity)
        }
    }
}

impl Ingress {
    fn identify(&self, headers: &HeaderMap, peer: Option<IpAddr>) -> Result<Identity, AuthError> {
        let peer = peer.map(|ip| ip.to_canonical());
        if !peer.is_some_and(|ip| self.trusted.iter().any(|net| net.contains(ip))) {
            return Err(AuthError::UntrustedPeer);
        }
        let subject = single(headers, &self.user_header)?.ok_or(AuthError::MissingCredentials)?;
        let groups = single(headers, &self.groups_header)?.unwrap_or("");
        let groups = groups.split(',').map(str::trim).filter(|g| !g.is_empty());
        Ok(Identity {
            subject: subject.to_owned(),
            tenant: single(headers, &self.tenant_header)?.map(str::to_owned),
            scopes: groups.take(MAX_SCOPES).map(str::to_owned).collect(),
            via: Via::Ingress,
        })
    }
}

/// Beyond this many scopes a caller's list is cut: nobody needs more, and it is kept per cached token.
pub(crate) const MAX_SCOPES: usize = 64;

/// A header that must not be repeated: of two values, one may be the client's own.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, AuthError> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(AuthError::MalformedHeader);
    }
    match value.to_str().map(str::trim) {
        Ok("") => Ok(None),
        Ok(text) if text.len() <= 4096 => Ok(Some(text)),
        _ => Err(AuthError::MalformedHeader),
    }
}

impl Passport {
    /// The token, from `Authorization` or else from the cookie.
    pub(crate) fn token<'a>(&self, headers: &'a HeaderMap) -> Result<&'a str, AuthError> {
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        if let Some(value) = values.next() {
            let text = value.to_str().map_err(|_| AuthError::MalformedHeader)?;
            let (scheme, token) = text.split_once(' ').ok_or(AuthError::MalformedHeader)?;
            if values.next().is_some() || !scheme.eq_ignore_ascii_case("bearer") {
                return Err(AuthError::MalformedHeader);
            }
            return Ok(token.trim());
        }
        let name = self
            .cookie
            .as_deref()
            .ok_or(AuthError::MissingCredentials)?;
        let cookies = headers.get_all(header::COOKIE).iter();
        let cookies = cookies
            .filter_map(|v| v.to_str().ok())
            .flat_map(|v| v.split(';'));
        let mut found = cookies.filter_map(|pair| match pair.trim().split_once('=') {
            Some((key, value)) if key == name => Some(value),
            _ => None,
        });
        let token = found.next().ok_or(AuthError::MissingCredentials)?;
        // Of two, one may have been set by a neighbouring site.
        match found.next() {
            None => Ok(token),
            Some(_) => Err(AuthError::MalformedHeader),
        }
    }
}

#[cfg(test)]
mod test_tokens;
#[cfg(test)]
mod tests;
