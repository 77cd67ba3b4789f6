//! The keys that every service has, and what the kernel asks of a service's configuration.

use std::net::SocketAddr;

use crate::{
    auth::{AuthConfig, check_bind},
    config::{Broken, Settings},
};

crate::settings! {
    /// TLS of the HTTP listener; off while `cert` is empty.
    pub struct TlsConfig {
        /// Certificate chain, PEM; read again at each reload.
        cert: String = String::new(), restart;
        /// Private key, PEM.
        key: String = String::new(), restart;
        /// Authorities whose clients are let in, PEM; empty to ask for no client certificate.
        client_ca: String = String::new(), restart;
    }
}

crate::settings! {
    /// How a changed configuration is noticed.
    pub struct ReloadConfig {
        /// Time between two looks at the configuration file; 0 for none.
        watch_ms: u64 = 2_000 => 0..=3_600_000, restart;
    }
}

/// A service's configuration, as the kernel and the command line use it.
pub trait AppSettings: Settings + Clone + Send + Sync + 'static {
    /// What no single key can tell.
    fn rules(&self) -> Vec<Broken>;

    /// Where its files lie; `None` if it keeps none.
    fn data_dir(&self) -> Option<&str>;

    /// Where it listens. Each is bound before anything is made, and handed over in this order.
    fn binds(&self) -> Vec<SocketAddr>;

    fn auth(&self) -> &AuthConfig;

    /// Whether `POST /api/v1/reload` and `/shutdown` exist.
    fn admin(&self) -> bool;

    fn tls(&self) -> &TlsConfig;

    fn reload(&self) -> &ReloadConfig;
}

/// The accessors of [`AppSettings`] for sections of the usual names; `admin` is where that key lies.
#[macro_export]
macro_rules! app_sections {
    ($($admin:ident).+) => {
        fn auth(&self) -> &$crate::auth::AuthConfig {
            &self.auth
        }

        fn admin(&self) -> bool {
            self.$($admin).+
        }

        fn tls(&self) -> &$crate::app::TlsConfig {
            &self.tls
        }

        fn reload(&self) -> &$crate::app::ReloadConfig {
            &self.reload
        }
    };
}

/// What keeps callers from being told apart where the service listens.
pub fn caller_rules(auth: &AuthConfig, bind: SocketAddr) -> Vec<Broken> {
    match auth.to_mode() {
        Err(broken) => broken,
        Ok(mode) => {
            let broken = |reason| Broken {
                key: "auth.mode",
                reason,
            };
            check_bind(&mode, bind)
                .err()
                .map(broken)
                .into_iter()
                .collect()
        }
    }
}

impl TlsConfig {
    pub fn is_on(&self) -> bool {
        !self.cert.is_empty()
    }

    /// How a client writes the address.
    pub fn scheme(&self) -> &'static str {
        if self.is_on() { "https" } else { "http" }
    }

    pub fn rules(&self) -> Vec<Broken> {
        let broken = |key, reason: &str| Broken {
            key,
            reason: reason.to_owned(),
        };
        let mut all = Vec::new();
        if self.cert.is_empty() != self.key.is_empty() {
            all.push(broken("tls.key", "tls.cert and tls.key belong together"));
        }
        if self.cert.is_empty() && !self.client_ca.is_empty() {
            all.push(broken("tls.client_ca", "needs tls.cert and tls.key"));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_and_its_key_belong_together_and_clients_need_both() {
        for (cert, key, client_ca, told) in [
            ("", "", "", &[][..]),
            ("c", "k", "", &[]),
            ("c", "k", "a", &[]),
            ("c", "", "", &["tls.key"]),
            ("", "k", "", &["tls.key"]),
            ("", "", "a", &["tls.client_ca"]),
            ("", "k", "a", &["tls.key", "tls.client_ca"]),
        ] {
            let tls = TlsConfig {
                cert: cert.into(),
                key: key.into(),
                client_ca: client_ca.into(),
            };
            let keys: Vec<_> = tls.rules().iter().map(|broken| broken.key).collect();
            assert_eq!(keys, told, "{tls:?}");
        }
    }
}
