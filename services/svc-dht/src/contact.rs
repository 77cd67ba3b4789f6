//! Where a node can be reached: small, because a table holds hundreds.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr, SocketAddr},
};

use crate::id::Id;

/// A node's id and where it listens.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Contact {
    pub id: Id,
    pub addr: Addr,
}

/// A socket address in 18 bytes; IPv4 is kept in its mapped form.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Addr {
    ip: [u8; 16],
    port: [u8; 2],
}

/// The network that an address is counted under: a /24 of IPv4, a /48 of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subnet(pub [u8; 16]);

impl Addr {
    pub fn port(&self) -> u16 {
        u16::from_be_bytes(self.port)
    }

    pub fn ip(&self) -> IpAddr {
        Ipv6Addr::from(self.ip).to_canonical()
    }

    pub fn socket(&self) -> SocketAddr {
        SocketAddr::new(self.ip(), self.port())
    }

    pub fn subnet(&self) -> Subnet {
        let kept = if self.ip().is_ipv4() { 15 } else { 6 };
        let mut net = self.ip;
        net[kept..].fill(0);
        Subnet(net)
    }

    /// Whether anybody could be reached there.
    pub fn is_usable(&self) -> bool {
        let ip = self.ip();
        self.port() != 0 && !ip.is_unspecified() && !ip.is_multicast()
    }
}

impl From<SocketAddr> for Addr {
    fn from(addr: SocketAddr) -> Self {
        let ip = match addr.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        Addr {
            ip: ip.octets(),
            port: addr.port().to_be_bytes(),
        }
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.socket().fmt(f)
    }
}

impl fmt::Debug for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.socket().fmt(f)
    }
}

impl fmt::Debug for Contact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}@{}", self.id, self.addr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> Addr {
        text.parse::<SocketAddr>().unwrap().into()
    }

    #[test]
    fn an_address_survives_its_small_form() {
        for text in ["10.1.2.3:4", "[2001:db8::1]:65535", "127.0.0.1:0"] {
            assert_eq!(addr(text).to_string(), text);
        }
        assert_eq!(size_of::<Contact>(), 50);
    }

    #[test]
    fn neighbours_share_a_subnet() {
        assert_eq!(addr("10.1.2.3:4").subnet(), addr("10.1.2.200:9").subnet());
        assert_ne!(addr("10.1.2.3:4").subnet(), addr("10.1.3.3:4").subnet());
        let a = addr("[2001:db8:1::1]:1").subnet();
        assert_eq!(a, addr("[2001:db8:1:ffff::9]:1").subnet());
        assert_ne!(a, addr("[2001:db8:2::1]:1").subnet());
    }

    #[test]
    fn nobody_is_reached_at_port_zero_or_nowhere() {
        for (text, usable) in [
            ("10.1.2.3:4", true),
            ("10.1.2.3:0", false),
            ("0.0.0.0:1", false),
            ("[::]:1", false),
            ("224.0.0.1:5", false),
        ] {
            assert_eq!(addr(text).is_usable(), usable, "{text}");
        }
    }
}
