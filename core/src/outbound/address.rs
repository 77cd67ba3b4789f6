//! Which addresses an outbound connection may be made to.
//!
//! Pure. A name says nothing: the policy is asked about the very address that is about to be dialled, so that no
//! answer of a name server can lead a request to the machine's own services or to the cloud's metadata. Always: an
//! IPv6 address that carries an IPv4 address is judged by what it carries.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use crate::auth::Cidr;

/// What kind of place an address is, by the registries of special purposes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Reachable from anywhere.
    Public,
    /// RFC 1918, unique local and the old site-local addresses.
    Private,
    /// Between a provider and its customers, RFC 6598.
    Shared,
    Loopback,
    LinkLocal,
    /// Where a cloud tells a machine its secrets. Some of these lie in public ranges.
    Metadata,
    Unspecified,
    Multicast,
    Documentation,
    /// Everything else that nobody can be at.
    Reserved,
}

impl Scope {
    pub fn of(address: IpAddr) -> Scope {
        match carried(address) {
            IpAddr::V4(v4) => first(V4, v4.to_bits(), |a, b| (a ^ b).leading_zeros()),
            IpAddr::V6(v6) => first(V6, v6.to_bits(), |a, b| (a ^ b).leading_zeros()),
        }
    }

    const fn bit(self) -> u16 {
        1 << self as u16
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Scope::Public => "a public address",
            Scope::Private => "a private address",
            Scope::Shared => "a provider's shared address",
            Scope::Loopback => "a loopback address",
            Scope::LinkLocal => "a link-local address",
            Scope::Metadata => "a cloud's metadata address",
            Scope::Unspecified => "an unspecified address",
            Scope::Multicast => "a multicast address",
            Scope::Documentation => "a documentation address",
            Scope::Reserved => "a reserved address",
        })
    }
}

/// Ranges to refuse come before ranges to allow, and both before scopes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressPolicy {
    scopes: u16,
    allowed: Vec<Cidr>,
    refused: Vec<Cidr>,
}

/// The address that was not dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{address} is {scope}, which the address policy forbids")]
pub struct Forbidden {
    pub address: IpAddr,
    pub scope: Scope,
}

impl AddressPolicy {
    /// Every address: for a destination that the operator named.
    pub const fn any() -> Self {
        Self::with_scopes(u16::MAX)
    }

    /// Nothing but what is reachable from anywhere: for a destination that somebody else named.
    pub const fn public() -> Self {
        Self::with_scopes(Scope::Public.bit())
    }

    /// Nothing but what [`allow`](Self::allow) adds.
    pub const fn none() -> Self {
        Self::with_scopes(0)
    }

    const fn with_scopes(scopes: u16) -> Self {
        AddressPolicy {
            scopes,
            allowed: Vec::new(),
            refused: Vec::new(),
        }
    }

    #[must_use]
    pub fn allow_scope(mut self, scope: Scope) -> Self {
        self.scopes |= scope.bit();
        self
    }

    #[must_use]
    pub fn allow(mut self, ranges: impl IntoIterator<Item = Cidr>) -> Self {
        self.allowed.extend(ranges);
        self
    }

    #[must_use]
    pub fn refuse(mut self, ranges: impl IntoIterator<Item = Cidr>) -> Self {
        self.refused.extend(ranges);
        self
    }

    pub fn check(&self, address: IpAddr) -> Result<(), Forbidden> {
        let carried = carried(address);
        let among = |ranges: &[Cidr]| {
            let holds = |range: &Cidr| range.contains(address) || range.contains(carried);
            ranges.iter().any(holds)
        };
        let scope = Scope::of(address);
        let allowed =
            !among(&self.refused) && (self.scopes & scope.bit() != 0 || among(&self.allowed));
        allowed.then_some(()).ok_or(Forbidden { address, scope })
    }

    /// What may be dialled of what a name resolved to, in the same order.
    pub fn retain<T>(
        &self,
        found: impl IntoIterator<Item = T>,
        ip: impl Fn(&T) -> IpAddr,
    ) -> Result<Vec<T>, Forbidden> {
        let mut first_refused = None;
        let mut allowed = Vec::new();
        for one in found {
            match self.check(ip(&one)) {
                Ok(()) => allowed.push(one),
                Err(forbidden) => {
                    first_refused.get_or_insert(forbidden);
                }
            }
        }
        match first_refused {
            Some(forbidden) if allowed.is_empty() => Err(forbidden),
            _ => Ok(allowed),
        }
    }
}

/// The IPv4 address within an IPv6 address that leads to it: mapped (`::ffff:`), compatible, translated (SIIT,
/// NAT64) and 6to4. Others are themselves.
fn carried(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else {
        return address;
    };
    let bits = v6.to_bits();
    let low = Ipv4Addr::from_bits(bits as u32);
    match v6.segments() {
        [0, 0, 0, 0, 0, 0xffff, ..]
        | [0, 0, 0, 0, 0xffff, 0, ..]
        | [0x64, 0xff9b, 0, 0, 0, 0, ..] => low.into(),
        // `::` and `::1` are their own.
        [0, 0, 0, 0, 0, 0, ..] if bits > 1 => low.into(),
        [0x2002, ..] => Ipv4Addr::from_bits((bits >> 80) as u32).into(),
        _ => address,
    }
}

/// The first range that holds the address decides.
fn first<B: Copy>(
    table: &[(B, u32, Scope)],
    bits: B,
    shared_prefix: impl Fn(B, B) -> u32,
) -> Scope {
    let holds = |(net, len, _): &&(B, u32, Scope)| shared_prefix(*net, bits) >= *len;
    table
        .iter()
        .find(holds)
        .map_or(Scope::Reserved, |row| row.2)
}

const fn v4(a: u8, b: u8, c: u8, d: u8, len: u32, scope: Scope) -> (u32, u32, Scope) {
    (Ipv4Addr::new(a, b, c, d).to_bits(), len, scope)
}

const fn v6(head: [u16; 3], tail: u16, len: u32, scope: Scope) -> (u128, u32, Scope) {
    let [a, b, c] = head;
    (
        Ipv6Addr::new(a, b, c, 0, 0, 0, 0, tail).to_bits(),
        len,
        scope,
    )
}

const V4: &[(u32, u32, Scope)] = &[
    v4(169, 254, 169, 254, 32, Scope::Metadata),
    v4(169, 254, 170, 2, 32, Scope::Metadata),
    v4(168, 63, 129, 16, 32, Scope::Metadata),
    v4(100, 100, 100, 200, 32, Scope::Metadata),
    v4(192, 0, 0, 192, 32, Scope::Metadata),
    v4(0, 0, 0, 0, 8, Scope::Unspecified),
    v4(10, 0, 0, 0, 8, Scope::Private),
    v4(100, 64, 0, 0, 10, Scope::Shared),
    v4(127, 0, 0, 0, 8, Scope::Loopback),
    v4(169, 254, 0, 0, 16, Scope::LinkLocal),
    v4(172, 16, 0, 0, 12, Scope::Private),
    v4(192, 0, 0, 0, 24, Scope::Reserved),
    v4(192, 0, 2, 0, 24, Scope::Documentation),
    v4(192, 88, 99, 0, 24, Scope::Reserved),
    v4(192, 168, 0, 0, 16, Scope::Private),
    v4(198, 18, 0, 0, 15, Scope::Reserved),
    v4(198, 51, 100, 0, 24, Scope::Documentation),
    v4(203, 0, 113, 0, 24, Scope::Documentation),
    v4(224, 0, 0, 0, 4, Scope::Multicast),
    v4(240, 0, 0, 0, 4, Scope::Reserved),
    v4(0, 0, 0, 0, 0, Scope::Public),
];

const V6: &[(u128, u32, Scope)] = &[
    v6([0xfd00, 0x0ec2, 0], 0x254, 128, Scope::Metadata),
    v6([0xfd20, 0x00ce, 0], 0x254, 128, Scope::Metadata),
    v6([0, 0, 0], 0, 128, Scope::Unspecified),
    v6([0, 0, 0], 1, 128, Scope::Loopback),
    v6([0x2001, 0, 0], 0, 23, Scope::Reserved),
    v6([0x2001, 0x0db8, 0], 0, 32, Scope::Documentation),
    v6([0x3fff, 0, 0], 0, 20, Scope::Documentation),
    v6([0x2000, 0, 0], 0, 3, Scope::Public),
    v6([0xfc00, 0, 0], 0, 7, Scope::Private),
    v6([0xfe80, 0, 0], 0, 10, Scope::LinkLocal),
    v6([0xfec0, 0, 0], 0, 10, Scope::Private),
    v6([0xff00, 0, 0], 0, 8, Scope::Multicast),
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn range(text: &str) -> Cidr {
        text.parse().unwrap()
    }

    /// The first and the last address of each range, and their neighbours outside.
    #[test]
    fn every_special_range_is_known_to_its_edges() {
        use Scope::*;
        let cases = [
            (
                Public,
                "1.0.0.0 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0 \
                 168.63.129.15 168.63.129.17 169.253.255.255 169.255.0.0 172.15.255.255 172.32.0.0 \
                 191.255.255.255 192.0.1.0 192.0.3.0 192.88.98.255 192.88.100.0 192.167.255.255 \
                 192.169.0.0 198.17.255.255 198.20.0.0 198.51.99.255 198.51.101.0 203.0.112.255 \
                 203.0.114.0 223.255.255.255 2000:: 2001:200:: 2001:db7:ffff:: 2001:db9:: 2606:4700::1111 \
                 3ffe::1 3fff:1000:: ::ffff:8.8.8.8 64:ff9b::8.8.8.8 2002:808:808::1 ::ffff:0:8.8.8.8 \
                 ::8.8.8.8",
            ),
            (
                Private,
                "10.0.0.0 10.255.255.255 172.16.0.0 172.31.255.255 192.168.0.0 192.168.255.255 fc00:: \
                 fdff:ffff::1 fec0::1 feff::1 ::ffff:10.1.2.3 64:ff9b::10.1.2.3 2002:a01:203::1 \
                 ::ffff:0:10.1.2.3 ::10.1.2.3",
            ),
            (Shared, "100.64.0.0 100.127.255.255 ::ffff:100.64.0.1"),
            (
                Loopback,
                "127.0.0.0 127.0.0.1 127.255.255.255 ::1 ::ffff:127.0.0.1 64:ff9b::7f00:1 2002:7f00:1:: \
                 ::127.0.0.1 ::ffff:0:127.0.0.1",
            ),
            (
                LinkLocal,
                "169.254.0.0 169.254.255.255 fe80::1 febf::1 ::ffff:169.254.1.1",
            ),
            (
                Metadata,
                "169.254.169.254 169.254.170.2 168.63.129.16 100.100.100.200 192.0.0.192 fd00:ec2::254 \
                 fd20:ce::254 ::ffff:169.254.169.254 64:ff9b::a9fe:a9fe 2002:a9fe:a9fe::",
            ),
            (
                Unspecified,
                "0.0.0.0 0.255.255.255 :: ::ffff:0.0.0.0 64:ff9b::",
            ),
            (
                Multicast,
                "224.0.0.0 239.255.255.255 ff00:: ff02::1 ::ffff:224.0.0.1",
            ),
            (
                Documentation,
                "192.0.2.0 192.0.2.255 198.51.100.0 198.51.100.255 203.0.113.0 203.0.113.255 2001:db8:: \
                 2001:db8:ffff:: 3fff:: 3fff:fff::",
            ),
            (
                Reserved,
                "192.0.0.0 192.0.0.191 192.0.0.255 192.88.99.0 192.88.99.255 198.18.0.0 198.19.255.255 \
                 240.0.0.0 255.255.255.254 255.255.255.255 64:ff9b:1::1 100::1 2001::1 2001:1ff:ffff:: \
                 4000:: 5f00::1 1fff:: fbff:: fe00::",
            ),
        ];
        for (scope, addresses) in cases {
            for address in addresses.split_whitespace() {
                assert_eq!(Scope::of(ip(address)), scope, "{address}");
                assert_eq!(
                    AddressPolicy::public().check(ip(address)).is_ok(),
                    scope == Public,
                    "{address}"
                );
                assert!(AddressPolicy::any().check(ip(address)).is_ok(), "{address}");
                assert!(
                    AddressPolicy::none().check(ip(address)).is_err(),
                    "{address}"
                );
                let one = AddressPolicy::none().allow_scope(scope);
                assert!(one.check(ip(address)).is_ok(), "{address}");
            }
        }
    }

    #[test]
    fn ranges_to_refuse_come_before_ranges_to_allow_and_both_before_scopes() {
        let policy = AddressPolicy::public()
            .allow([range("10.0.0.0/8"), range("fd00::/8")])
            .refuse([range("10.9.0.0/16"), range("8.8.8.8")]);
        let cases = [
            ("10.1.1.1", true),
            ("::ffff:10.1.1.1", true),
            ("10.9.1.1", false),
            ("::ffff:10.9.1.1", false),
            ("64:ff9b::10.9.1.1", false),
            ("192.168.1.1", false),
            ("8.8.8.8", false),
            ("::ffff:8.8.8.8", false),
            ("8.8.4.4", true),
            ("fd12::1", true),
            ("fc12::1", false),
        ];
        for (address, allowed) in cases {
            assert_eq!(policy.check(ip(address)).is_ok(), allowed, "{address}");
        }
        let refused = policy
            .check(ip("::ffff:192.168.1.1"))
            .unwrap_err()
            .to_string();
        assert_eq!(
            refused,
            "::ffff:192.168.1.1 is a private address, which the address policy forbids"
        );
    }

    #[test]
    fn of_several_addresses_the_allowed_ones_stay_and_none_is_a_refusal() {
        let policy = AddressPolicy::public();
        let kept = |found: &[&str]| policy.retain(found.iter().map(|a| ip(a)), |a| *a);
        assert_eq!(
            kept(&["127.0.0.1", "8.8.8.8", "::1", "1.1.1.1"]),
            Ok(vec![ip("8.8.8.8"), ip("1.1.1.1")])
        );
        let refused = kept(&["127.0.0.1", "10.0.0.1"]).unwrap_err();
        assert_eq!(
            (refused.address, refused.scope),
            (ip("127.0.0.1"), Scope::Loopback)
        );
        assert_eq!(kept(&[]), Ok(vec![]));
    }

    proptest! {
        /// However an IPv4 address is wrapped, it is what it is.
        #[test]
        fn a_wrapped_address_is_judged_as_the_bare_one(v4: u32) {
            // The two that IPv6 has for itself.
            prop_assume!(v4 > 1);
            let bare = IpAddr::V4(Ipv4Addr::from_bits(v4));
            let low = u128::from(v4);
            let wrapped = [
                low,
                0xffff_u128 << 32 | low,
                0xffff_u128 << 48 | low,
                0x0064_ff9b_u128 << 96 | low,
                0x2002_u128 << 112 | low << 80 | 7,
            ];
            for bits in wrapped {
                let wrapped = IpAddr::V6(Ipv6Addr::from_bits(bits));
                prop_assert_eq!(Scope::of(wrapped), Scope::of(bare), "{}", wrapped);
                let only = AddressPolicy::any().refuse([Cidr::from(bare)]);
                prop_assert!(only.check(wrapped).is_err());
            }
        }
    }
}
