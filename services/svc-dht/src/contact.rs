//! Where a node can be reached: small, because a table holds hundreds.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr, SocketAddr},
};

use bytes::BufMut;

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

const V4_LEN: usize = 32 + 4 + 2;
const V6_LEN: usize = 32 + 16 + 2;

impl Contact {
    /// Id, address and port: 38 bytes for IPv4 and 50 for IPv6, wherever a contact is stored or sent.
    pub fn put(&self, out: &mut impl BufMut) {
        out.put_slice(&self.id.0);
        out.put_slice(match self.addr.ip() {
            IpAddr::V4(_) => &self.addr.ip[12..],
            IpAddr::V6(_) => &self.addr.ip,
        });
        out.put_slice(&self.addr.port);
    }

    /// As many bytes as [`put`](Self::put) writes.
    pub fn encoded_len(&self) -> usize {
        match self.addr.ip() {
            IpAddr::V4(_) => V4_LEN,
            IpAddr::V6(_) => V6_LEN,
        }
    }

    /// None for anything that [`put`](Self::put) does not write, such as the long form of an IPv4 address.
    pub fn from_bytes(bytes: &[u8]) -> Option<Contact> {
        let (id, rest) = bytes.split_first_chunk()?;
        let (ip, port) = rest.split_last_chunk()?;
        let ip = match ip.len() {
            4 => IpAddr::from(<[u8; 4]>::try_from(ip).ok()?),
            16 => IpAddr::from(<[u8; 16]>::try_from(ip).ok()?),
            _ => return None,
        };
        let contact = Contact {
            id: Id(*id),
            addr: SocketAddr::new(ip, u16::from_be_bytes(*port)).into(),
        };
        (contact.encoded_len() == bytes.len()).then_some(contact)
    }
}

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
    use proptest::prelude::*;

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

    #[test]
    fn the_long_form_of_an_ipv4_address_is_no_contact() {
        let mut long = vec![7; 32];
        long.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3, 0, 4]);
        assert_eq!(Contact::from_bytes(&long), None);
        long[42] = 0xfe;
        assert!(Contact::from_bytes(&long).is_some());
    }

    proptest! {
        #[test]
        fn a_contact_is_read_as_it_was_written(id: [u8; 32], ip: IpAddr, port: u16) {
            let addr = SocketAddr::new(ip, port).into();
            let contact = Contact { id: Id(id), addr };
            let mut bytes = Vec::new();
            contact.put(&mut bytes);
            prop_assert_eq!(bytes.len(), contact.encoded_len());
            prop_assert_eq!(Contact::from_bytes(&bytes), Some(contact));
        }

        #[test]
        fn what_reads_as_a_contact_is_what_is_written(bytes in proptest::collection::vec(any::<u8>(), 30..55)) {
            if let Some(contact) = Contact::from_bytes(&bytes) {
                let mut again = Vec::new();
                contact.put(&mut again);
                prop_assert_eq!(again, bytes);
            }
        }
    }
}
