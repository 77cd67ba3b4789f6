//! The `http.*` keys: how a service may be reached, by whom, and how long a connection may take.

use std::{sync::Arc, time::Duration};

use super::{Hosts, ServeOptions};
use crate::config::Broken;

crate::settings! {
    /// Connections, and the names under which the service answers.
    pub struct HttpConfig {
        /// Names under which the service may be asked, beside loopback names and the bound address: `kms.example`, `*.example`, or `*` for any.
        hosts: Vec<String> = vec![], restart;
        /// Origins of web pages that may ask, beside the service's own: `https://admin.example`, `null`, or `*` for any.
        origins: Vec<String> = vec![], restart;
        /// Connections at once. When all are taken, the longest idle one makes room; while none is idle, more are answered 503.
        max_conns: usize = 1_024 => 1..=65_536, restart;
        /// Of these, from one address (IPv6: one /64). Its own longest idle one makes room, else 429. 0 for no limit.
        max_conns_per_peer: usize = 512 => 0..=65_536, restart;
        /// For a request to arrive.
        read_timeout_ms: u64 = 5_000 => 1..=600_000, restart;
        /// For an answer to be taken.
        write_timeout_ms: u64 = 5_000 => 1..=600_000, restart;
        /// For a connection without a request.
        idle_timeout_ms: u64 = 60_000 => 1..=3_600_000, restart;
        /// HTTP/2 frames per second that carry no request: PING, SETTINGS, resets and the like. More end the connection.
        http2_frames_per_s: u32 = 1_000 => 10..=1_000_000, restart;
    }
}

impl HttpConfig {
    /// What no single key can tell.
    pub fn rules(&self) -> Vec<Broken> {
        match Hosts::new(&self.hosts, &self.origins) {
            Ok(_) => Vec::new(),
            Err((key, reason)) => vec![Broken { key, reason }],
        }
    }

    pub fn options(&self, close_grace: Duration) -> ServeOptions {
        let ms = Duration::from_millis;
        ServeOptions {
            // Refused by the rules before anybody serves; else only the names that need no list.
            hosts: Arc::new(Hosts::new(&self.hosts, &self.origins).unwrap_or_default()),
            max_conns: self.max_conns,
            max_conns_per_peer: self.max_conns_per_peer,
            header_read: ms(self.read_timeout_ms),
            body_read: ms(self.read_timeout_ms),
            write: ms(self.write_timeout_ms),
            idle: ms(self.idle_timeout_ms),
            http2_frames_per_s: self.http2_frames_per_s,
            close_grace,
            ..ServeOptions::default()
        }
    }
}
