//! Around the drilled endpoints: who asks, what an operator may do, and an answer read to its end.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use axum::response::Response;
use http::HeaderMap;
use http_body_util::BodyExt;
use ron_core::{
    auth::{Gate, Ingress, Mode},
    config::{ConfigError, ConfigErrors, Origin, ReloadReport},
    ops::Admin,
    seam::BoxFuture,
    telemetry::Telemetry,
    view::{TaskCounts, TaskView},
};
use serde_json::Value;

use super::Bench;

/// Who asks, as an ingress tells it.
#[derive(Debug)]
pub struct Caller {
    pub peer: Option<[u8; 4]>,
    pub user: Option<&'static str>,
    pub groups: Option<&'static str>,
}

impl Caller {
    pub fn draw(bench: &mut Bench) -> Self {
        let near = Some([10, 1, 2, 3]);
        Caller {
            peer: bench.one_of(&[near, near, near, Some([192, 0, 2, 1]), None]),
            user: bench.one_of(&[Some("ada"), Some("ada"), Some("ada"), Some(" "), None]),
            groups: bench.one_of(&[
                Some("ops:admin"),
                Some("ops:read, ops:admin"),
                Some("ops:administrator"),
                Some("ops"),
                None,
            ]),
        }
    }

    /// Why an operator's action is refused.
    pub fn refused(&self, open: bool) -> Option<(u16, &'static str)> {
        if open {
            // Nobody vouches for anybody.
            return Some((401, "missing_credentials"));
        }
        let named = self.user.is_some_and(|user| !user.trim().is_empty());
        let groups = self.groups.unwrap_or("").split(',');
        let allowed = groups.map(str::trim).any(|group| group == "ops:admin");
        match (self.peer, named, allowed) {
            (Some([10, ..]), true, true) => None,
            (Some([10, ..]), true, false) => Some((403, "missing_scope")),
            (Some([10, ..]), false, _) => Some((401, "missing_credentials")),
            _ => Some((403, "untrusted_peer")),
        }
    }
}

#[derive(Clone, Default)]
pub struct Tasks(pub Arc<Mutex<BTreeMap<&'static str, TaskCounts>>>);

impl TaskView for Tasks {
    fn tasks(&self) -> BTreeMap<&'static str, TaskCounts> {
        self.0.lock().unwrap().clone()
    }
}

/// What an operator may do, and what came of it.
#[derive(Clone, Default)]
pub struct Deeds {
    pub fails: Arc<AtomicBool>,
    pub reloads: Arc<AtomicU64>,
    pub shutdowns: Arc<AtomicU64>,
}

impl Deeds {
    pub fn admin(&self, telemetry: &Telemetry, open: bool, reload: bool, shutdown: bool) -> Admin {
        let mode = match open {
            true => Mode::None,
            false => ingress(),
        };
        let (reloads, stops) = (self.clone(), self.shutdowns.clone());
        let does_reload = move || -> BoxFuture<'static, _> {
            reloads.reloads.fetch_add(1, Relaxed);
            let fails = reloads.fails.load(Relaxed);
            let report = ReloadReport {
                applied: vec!["a".to_owned()],
                needs_restart: vec!["b".to_owned()],
            };
            Box::pin(async move { if fails { Err(broken()) } else { Ok(report) } })
        };
        let does_stop = move || {
            stops.fetch_add(1, Relaxed);
        };
        Admin {
            gate: Gate::new(mode, telemetry),
            reload: reload.then(|| Arc::new(does_reload) as _),
            shutdown: shutdown.then(|| Arc::new(does_stop) as _),
        }
    }
}

/// Whoever comes from 10.0.0.0/8 is believed.
pub fn ingress() -> Mode {
    Mode::Ingress(Ingress {
        user_header: "x-user".parse().expect("a name"),
        groups_header: "x-groups".parse().expect("a name"),
        tenant_header: "x-tenant".parse().expect("a name"),
        trusted: vec!["10.0.0.0/8".parse().expect("a range")],
    })
}

pub fn broken() -> ConfigErrors {
    ConfigErrors(vec![ConfigError {
        origin: Origin::Cli,
        key: "low".to_owned(),
        value: "9".to_owned(),
        reason: "too high".to_owned(),
    }])
}

/// An answer, read to its end.
pub struct Whole {
    pub status: u16,
    pub headers: HeaderMap,
    pub text: String,
}

impl Whole {
    pub async fn read(answer: Response) -> Result<Self, String> {
        let (parts, body) = answer.into_parts();
        let body = body.collect().await.map_err(|e| e.to_string())?;
        Ok(Whole {
            status: parts.status.as_u16(),
            headers: parts.headers,
            text: String::from_utf8_lossy(&body.to_bytes()).into_owned(),
        })
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_default()
    }
}
