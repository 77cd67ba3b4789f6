//! `Cache-Status` (RFC 9211): what this cache did with a request, in one line of the answer.

use std::fmt;

/// The name this cache has in the field.
pub const CACHE: &str = "svc-edge";

/// How a request was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// From what is stored, fresh for `ttl` seconds more (less than nothing: stale).
    Hit { ttl: i64 },
    /// The origin was asked, and why.
    Forwarded {
        why: Forward,
        /// What the origin answered, if it did.
        status: Option<u16>,
        stored: bool,
        /// Several requests shared one fetch, and this is one that waited.
        collapsed: bool,
    },
    /// Nobody was asked and nothing was there, or it was refused.
    Refused { detail: &'static str },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forward {
    Bypass,
    Method,
    UriMiss,
    VaryMiss,
    Request,
    Stale,
}

impl Forward {
    fn word(self) -> &'static str {
        match self {
            Forward::Bypass => "bypass",
            Forward::Method => "method",
            Forward::UriMiss => "uri-miss",
            Forward::VaryMiss => "vary-miss",
            Forward::Request => "request",
            Forward::Stale => "stale",
        }
    }
}

impl fmt::Display for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(CACHE)?;
        match self {
            Served::Hit { ttl } => write!(f, "; hit; ttl={ttl}"),
            Served::Forwarded {
                why,
                status,
                stored,
                collapsed,
            } => {
                write!(f, "; fwd={}", why.word())?;
                if let Some(status) = status {
                    write!(f, "; fwd-status={status}")?;
                }
                f.write_str(if *stored { "; stored" } else { "" })?;
                f.write_str(if *collapsed { "; collapsed" } else { "" })
            }
            Served::Refused { detail } => write!(f, "; detail={detail}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_of_serving_has_its_line() {
        let miss = |status, stored, collapsed| Served::Forwarded {
            why: Forward::UriMiss,
            status,
            stored,
            collapsed,
        };
        for (served, line) in [
            (Served::Hit { ttl: 376 }, "svc-edge; hit; ttl=376"),
            (Served::Hit { ttl: -5 }, "svc-edge; hit; ttl=-5"),
            (
                miss(Some(200), true, false),
                "svc-edge; fwd=uri-miss; fwd-status=200; stored",
            ),
            (
                miss(Some(200), true, true),
                "svc-edge; fwd=uri-miss; fwd-status=200; stored; collapsed",
            ),
            (miss(None, false, false), "svc-edge; fwd=uri-miss"),
            (Served::Refused { detail: "busy" }, "svc-edge; detail=busy"),
        ] {
            assert_eq!(served.to_string(), line);
        }
    }
}
