//! Whether a request is meant for this server: the name it was sent to, and the web page it comes from.
//!
//! A web page can point its own name at a loopback address, and the browser then lets it talk to whatever listens
//! there. The name stays in `Host` (or `:authority`), so names are let in by list. A name that cannot be pointed
//! elsewhere needs no list: loopback names, loopback addresses and the bound address, or any address where all are
//! bound. Always: pure; ports do not matter for names (a tunnel changes them), but do for origins.

use std::net::{IpAddr, Ipv6Addr};

use http::{HeaderMap, Uri, Version, header, uri::Scheme};

use super::Refusal;

/// Which names and origins are let in, beside those that always are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    names: Vec<Pattern>,
    /// Lower case, as a browser writes them.
    origins: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    Any,
    Ip(IpAddr),
    Name(String),
    /// With its leading dot.
    Below(String),
}

/// A key that cannot be used, and why.
type Unusable = (&'static str, String);

impl Hosts {
    /// From the values of `http.hosts` and `http.origins`.
    pub fn new(hosts: &[String], origins: &[String]) -> Result<Hosts, Unusable> {
        let names = hosts
            .iter()
            .map(|text| pattern(text))
            .collect::<Result<_, _>>()?;
        let origins = origins.iter().map(|text| origin(text));
        let origins = origins.collect::<Result<_, _>>()?;
        Ok(Hosts { names, origins })
    }

    /// Any name and any origin: for servers that hold nothing worth a page's while.
    pub fn any() -> Hosts {
        Hosts {
            names: vec![Pattern::Any],
            origins: vec!["*".to_owned()],
        }
    }

    /// `bound` is the address that the server listens on; `probe` says that the request only asks how the process
    /// is, which any name may.
    pub(super) fn check(
        &self,
        bound: Option<IpAddr>,
        probe: bool,
        version: Version,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<(), Refusal> {
        let target = target(version, uri, headers)?;
        if let Some(target) = &target
            && !probe
            && !self.knows(bound, target.name)
        {
            return Err(Refusal::ForeignHost);
        }
        match headers.contains_key(header::ORIGIN) {
            true => self.check_origin(target, headers),
            false => Ok(()),
        }
    }

    fn knows(&self, bound: Option<IpAddr>, name: Name<'_>) -> bool {
        let native = match name {
            Name::Ip(ip) => {
                ip.is_loopback() || bound.is_some_and(|b| b.is_unspecified() || canonical(b) == ip)
            }
            Name::Dns(name) => {
                let top = name.rsplit('.').next().unwrap_or(name);
                top.eq_ignore_ascii_case("localhost")
            }
        };
        native || self.names.iter().any(|pattern| pattern.matches(name))
    }

    #[cold]
    fn check_origin(
        &self,
        target: Option<Authority<'_>>,
        headers: &HeaderMap,
    ) -> Result<(), Refusal> {
        let mut values = headers.get_all(header::ORIGIN).iter();
        let value = values.next().and_then(|value| value.to_str().ok());
        let (Some(value), None) = (value, values.next()) else {
            return Err(Refusal::ForeignOrigin);
        };
        let listed = |own: &String| own == "*" || own.eq_ignore_ascii_case(value);
        let own = || match (value.split_once("://"), target) {
            (Some((scheme, rest)), Some(target)) => {
                Authority::parse(rest).is_some_and(|page| page.same_as(&target, scheme))
            }
            _ => false,
        };
        match self.origins.iter().any(listed) || own() {
            true => Ok(()),
            false => Err(Refusal::ForeignOrigin),
        }
    }
}

/// Whom the request names, once. `None` for an HTTP/1.0 request without `Host`: allowed there, and no browser sends one.
fn target<'a>(
    version: Version,
    uri: &'a Uri,
    headers: &'a HeaderMap,
) -> Result<Option<Authority<'a>>, Refusal> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (host, more) = (hosts.next(), hosts.next());
    let parsed = |text: &'a str| Authority::parse(text).ok_or(Refusal::BadHost);
    let host = match (host, more) {
        (_, Some(_)) => return Err(Refusal::BadHost),
        (None, _) => None,
        (Some(host), _) => Some(parsed(host.to_str().map_err(|_| Refusal::BadHost)?)?),
    };
    // HTTP/2's `:authority`, or a request line in absolute form.
    let named = uri.authority().map(|a| parsed(a.as_str())).transpose()?;
    match (named, host) {
        (Some(named), Some(host)) => {
            let scheme = uri.scheme().unwrap_or(&Scheme::HTTP).as_str();
            match named.same_as(&host, scheme) {
                true => Ok(Some(named)),
                false => Err(Refusal::BadHost),
            }
        }
        // HTTP/1.1 asks for a `Host` whatever the request line says.
        (Some(named), None) if version >= Version::HTTP_2 => Ok(Some(named)),
        (None, Some(host)) => Ok(Some(host)),
        (named, None) if version <= Version::HTTP_10 => Ok(named),
        _ => Err(Refusal::BadHost),
    }
}

/// `host[:port]`, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Authority<'a> {
    name: Name<'a>,
    port: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name<'a> {
    Ip(IpAddr),
    /// Without a dot at its end.
    Dns(&'a str),
}

impl Name<'_> {
    fn same_as(&self, other: &Name<'_>) -> bool {
        match (self, other) {
            (Name::Dns(a), Name::Dns(b)) => a.eq_ignore_ascii_case(b),
            (a, b) => a == b,
        }
    }
}

impl<'a> Authority<'a> {
    fn parse(text: &'a str) -> Option<Authority<'a>> {
        let (name, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (ip, rest) = rest.split_once(']')?;
                let ip = canonical(ip.parse::<Ipv6Addr>().ok()?.into());
                (Name::Ip(ip), rest)
            }
            None => {
                let end = text.find(':').unwrap_or(text.len());
                (dns_or_ip(&text[..end])?, &text[end..])
            }
        };
        let port = match port {
            "" | ":" => None,
            port => {
                let digits = port.strip_prefix(':')?;
                let plain = digits.bytes().all(|b| b.is_ascii_digit());
                Some(digits.parse().ok().filter(|_| plain)?)
            }
        };
        Some(Authority { name, port })
    }

    fn same_as(&self, other: &Authority<'_>, scheme: &str) -> bool {
        let usual = match scheme.eq_ignore_ascii_case("https") {
            true => 443,
            false => 80,
        };
        self.name.same_as(&other.name) && self.port.unwrap_or(usual) == other.port.unwrap_or(usual)
    }
}

fn dns_or_ip(text: &str) -> Option<Name<'_>> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Some(Name::Ip(ip));
    }
    let text = text.strip_suffix('.').unwrap_or(text);
    let sound = |b: u8| b.is_ascii_alphanumeric() || b"-_".contains(&b);
    let label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(sound);
    (text.len() <= 253 && text.split('.').all(label)).then_some(Name::Dns(text))
}

/// An IPv4 address written as IPv6 is that IPv4 address.
fn canonical(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

impl Pattern {
    fn matches(&self, name: Name<'_>) -> bool {
        match (self, name) {
            (Pattern::Any, _) => true,
            (Pattern::Ip(own), Name::Ip(ip)) => *own == ip,
            (Pattern::Name(own), Name::Dns(name)) => own.eq_ignore_ascii_case(name),
            (Pattern::Below(own), Name::Dns(name)) => {
                let at = name.len().checked_sub(own.len());
                at.is_some_and(|at| {
                    at > 0 && name.as_bytes()[at..].eq_ignore_ascii_case(own.as_bytes())
                })
            }
            _ => false,
        }
    }
}

fn portless(text: &str) -> Option<Name<'_>> {
    match Authority::parse(text) {
        Some(Authority { name, port: None }) if !text.ends_with(':') => Some(name),
        _ => None,
    }
}

fn pattern(text: &str) -> Result<Pattern, Unusable> {
    let pattern = match text.strip_prefix("*.") {
        _ if text == "*" => Some(Pattern::Any),
        Some(rest) => match portless(rest) {
            Some(Name::Dns(name)) => Some(Pattern::Below(format!(".{name}"))),
            _ => None,
        },
        None => match portless(text) {
            Some(Name::Dns(name)) => Some(Pattern::Name(name.to_owned())),
            Some(Name::Ip(ip)) => Some(Pattern::Ip(ip)),
            None => None,
        },
    };
    let allowed = "a name, `*.` and a name, or an IP address, each without a port, or `*`";
    pattern.ok_or_else(|| ("http.hosts", format!("{text:?}: {allowed} is allowed")))
}

fn origin(text: &str) -> Result<String, Unusable> {
    let sound = match text.split_once("://") {
        Some(("http" | "https", rest)) => Authority::parse(rest).is_some() && !rest.ends_with(':'),
        _ => matches!(text, "*" | "null"),
    };
    let allowed = "an origin such as `https://admin.example`, `null` or `*`";
    match sound {
        true => Ok(text.to_ascii_lowercase()),
        false => Err(("http.origins", format!("{text:?}: {allowed} is allowed"))),
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Request};
    use proptest::prelude::*;

    use super::*;

    const HTTP: Version = Version::HTTP_11;

    fn check(
        hosts: &Hosts,
        bound: &str,
        version: Version,
        uri: &str,
        sent: &[(&str, &str)],
    ) -> &'static str {
        let mut request = Request::builder().version(version).uri(uri);
        for (name, value) in sent {
            request = request.header(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        let request = request.body(()).unwrap();
        let bound = bound.parse().ok();
        match hosts.check(bound, false, version, request.uri(), request.headers()) {
            Ok(()) => "ok",
            Err(refusal) => refusal.reason(),
        }
    }

    fn listed(hosts: &[&str], origins: &[&str]) -> Hosts {
        let owned = |list: &[&str]| list.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>();
        Hosts::new(&owned(hosts), &owned(origins)).unwrap()
    }

    #[test]
    fn names_that_cannot_be_pointed_elsewhere_need_no_list() {
        let none = Hosts::default();
        let cases = [
            ("127.0.0.1", "localhost", "ok"),
            ("127.0.0.1", "LocalHost:7480", "ok"),
            ("127.0.0.1", "localhost.:9", "ok"),
            ("127.0.0.1", "localhost:", "ok"),
            ("127.0.0.1", "kms.localhost", "ok"),
            ("127.0.0.1", "127.0.0.1:7480", "ok"),
            ("127.0.0.1", "127.1.2.3", "ok"),
            ("127.0.0.1", "[::1]:7480", "ok"),
            ("127.0.0.1", "[::ffff:127.0.0.1]", "ok"),
            ("127.0.0.1", "evil.example", "foreign_host"),
            ("127.0.0.1", "localhost.evil.example", "foreign_host"),
            ("127.0.0.1", "notlocalhost", "foreign_host"),
            ("127.0.0.1", "127.0.0.1.nip.io", "foreign_host"),
            ("127.0.0.1", "10.0.0.7", "foreign_host"),
            ("10.0.0.7", "10.0.0.7:80", "ok"),
            ("10.0.0.7", "10.0.0.8", "foreign_host"),
            ("0.0.0.0", "10.0.0.8", "ok"),
            ("::", "[fe80::1]:1", "ok"),
            ("::", "evil.example", "foreign_host"),
            ("unknown", "10.0.0.8", "foreign_host"),
        ];
        for (bound, host, expected) in cases {
            let got = check(&none, bound, HTTP, "/", &[("host", host)]);
            assert_eq!(got, expected, "{host} at {bound}");
        }
    }

    #[test]
    fn a_host_is_there_once_and_well_formed() {
        let any = Hosts::any();
        let malformed = [
            "",
            ":80",
            "a b",
            "a,b",
            "user@localhost",
            "localhost:x",
            "localhost:99999",
            "localhost:+1",
            "a..b",
            ".",
            "[::1",
            "[::1]x",
            "[127.0.0.1]",
            "::1",
            "http://localhost",
            "loc%61lhost",
            "h\u{e4}",
        ];
        for host in malformed {
            assert_eq!(
                check(&any, "", HTTP, "/", &[("host", host)]),
                "bad_host",
                "{host:?}"
            );
        }
        let twice = [("host", "localhost"), ("host", "localhost")];
        assert_eq!(check(&any, "", HTTP, "/", &twice), "bad_host");
        let long = format!("{}.x", "a".repeat(64));
        assert_eq!(check(&any, "", HTTP, "/", &[("host", &long)]), "bad_host");
        for (version, uri, sent, expected) in [
            (Version::HTTP_10, "/", None, "ok"),
            (Version::HTTP_11, "/", None, "bad_host"),
            (Version::HTTP_2, "/", None, "bad_host"),
            (Version::HTTP_2, "http://localhost/", None, "ok"),
            (
                Version::HTTP_2,
                "http://localhost/",
                Some("LOCALHOST:80"),
                "ok",
            ),
            (
                Version::HTTP_2,
                "https://localhost/",
                Some("localhost:443"),
                "ok",
            ),
            (
                Version::HTTP_2,
                "http://localhost/",
                Some("other"),
                "bad_host",
            ),
            (
                Version::HTTP_2,
                "http://localhost/",
                Some("localhost:81"),
                "bad_host",
            ),
            (
                Version::HTTP_11,
                "http://localhost/",
                Some("localhost"),
                "ok",
            ),
            (
                Version::HTTP_11,
                "http://localhost/",
                Some("other"),
                "bad_host",
            ),
            (Version::HTTP_11, "http://localhost/", None, "bad_host"),
            (
                Version::HTTP_2,
                "http://evil.example/",
                None,
                "foreign_host",
            ),
            (Version::HTTP_10, "/", Some("evil.example"), "foreign_host"),
        ] {
            let sent: Vec<_> = sent.into_iter().map(|host| ("host", host)).collect();
            let got = check(&Hosts::default(), "", version, uri, &sent);
            assert_eq!(got, expected, "{version:?} {uri} {sent:?}");
        }
    }

    #[test]
    fn listed_names_are_let_in_and_no_others() {
        let hosts = listed(&["kms.example", "*.pods.example", "10.1.1.1"], &[]);
        for (host, expected) in [
            ("kms.example:443", "ok"),
            ("KMS.EXAMPLE.", "ok"),
            ("a.pods.example", "ok"),
            ("a.b.PODS.example", "ok"),
            ("10.1.1.1", "ok"),
            ("pods.example", "foreign_host"),
            ("xpods.example", "foreign_host"),
            ("a.kms.example", "foreign_host"),
            ("10.1.1.2", "foreign_host"),
        ] {
            assert_eq!(
                check(&hosts, "", HTTP, "/", &[("host", host)]),
                expected,
                "{host}"
            );
        }
        assert_eq!(
            check(&Hosts::any(), "", HTTP, "/", &[("host", "x.y")]),
            "ok"
        );
    }

    #[test]
    fn a_page_of_another_origin_is_refused_unless_it_is_listed() {
        let none = Hosts::default();
        let hosts = listed(&[], &["https://admin.example", "null"]);
        for (origin, by_default, by_list) in [
            ("http://localhost:7480", "ok", "ok"),
            ("HTTP://LOCALHOST:7480", "ok", "ok"),
            ("http://localhost:3000", "foreign_origin", "foreign_origin"),
            ("http://localhost", "foreign_origin", "foreign_origin"),
            ("http://127.0.0.1:7480", "foreign_origin", "foreign_origin"),
            ("http://evil.example", "foreign_origin", "foreign_origin"),
            ("null", "foreign_origin", "ok"),
            ("https://admin.example", "foreign_origin", "ok"),
            ("http://admin.example", "foreign_origin", "foreign_origin"),
            ("", "foreign_origin", "foreign_origin"),
        ] {
            let sent = [("host", "localhost:7480"), ("origin", origin)];
            assert_eq!(check(&none, "", HTTP, "/", &sent), by_default, "{origin}");
            assert_eq!(check(&hosts, "", HTTP, "/", &sent), by_list, "{origin}");
            assert_eq!(check(&Hosts::any(), "", HTTP, "/", &sent), "ok", "{origin}");
        }
        // Usual ports go without saying.
        for (host, origin) in [
            ("localhost", "http://localhost:80"),
            ("localhost:443", "https://localhost"),
        ] {
            let sent = [("host", host), ("origin", origin)];
            assert_eq!(check(&none, "", HTTP, "/", &sent), "ok", "{origin}");
        }
        let two = [
            ("host", "localhost"),
            ("origin", "http://localhost"),
            ("origin", "null"),
        ];
        assert_eq!(check(&hosts, "", HTTP, "/", &two), "foreign_origin");
        let nameless = [("origin", "http://localhost")];
        assert_eq!(
            check(&none, "", Version::HTTP_10, "/", &nameless),
            "foreign_origin"
        );
    }

    #[test]
    fn lists_that_cannot_be_meant_are_refused_with_their_key() {
        let one = |text: &str| vec![text.to_owned()];
        for text in [
            "",
            "a:80",
            "a:",
            "http://a",
            "*.",
            "**",
            "*.10.0.0.1x ",
            "a b",
            "*.1.2.3.4",
            "*a",
        ] {
            let (key, reason) = Hosts::new(&one(text), &[]).unwrap_err();
            assert_eq!(key, "http.hosts", "{text:?}");
            assert!(reason.contains(&format!("{text:?}")), "{reason}");
        }
        for text in [
            "",
            "a",
            "ftp://a",
            "http://",
            "http://a/",
            "http://a b",
            "Null",
        ] {
            let (key, _) = Hosts::new(&[], &one(text)).unwrap_err();
            assert_eq!(key, "http.origins", "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic_and_what_parses_is_read_back(text in "[a-c.:0-9\\[\\]@%-]{0,12}") {
            if let Some(authority) = Authority::parse(&text) {
                let name = match authority.name {
                    Name::Ip(ip @ IpAddr::V6(_)) => format!("[{ip}]"),
                    Name::Ip(ip) => ip.to_string(),
                    Name::Dns(name) => name.to_owned(),
                };
                let again = match authority.port {
                    Some(port) => format!("{name}:{port}"),
                    None => name,
                };
                prop_assert_eq!(Authority::parse(&again), Some(authority));
            }
        }
    }
}
