//! A range of addresses, as written in configuration: `10.0.0.0/8`, `::1`.

use std::{fmt, net::IpAddr, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use crate::config::Setting;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    net: IpAddr,
    bits: u8,
}

impl Cidr {
    pub fn contains(&self, ip: IpAddr) -> bool {
        match (self.net, ip) {
            (IpAddr::V4(net), IpAddr::V4(ip)) => same_prefix(
                u128::from(net.to_bits()),
                u128::from(ip.to_bits()),
                32 - self.bits,
            ),
            (IpAddr::V6(net), IpAddr::V6(ip)) => {
                same_prefix(net.to_bits(), ip.to_bits(), 128 - self.bits)
            }
            _ => false,
        }
    }
}

fn same_prefix(a: u128, b: u128, ignored_bits: u8) -> bool {
    let differ = a ^ b;
    differ.checked_shr(u32::from(ignored_bits)).unwrap_or(0) == 0
}

/// The one address.
impl From<IpAddr> for Cidr {
    fn from(net: IpAddr) -> Self {
        let bits = if net.is_ipv4() { 32 } else { 128 };
        Cidr { net, bits }
    }
}

impl FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (net, bits) = match text.split_once('/') {
            Some((net, bits)) => (net, Some(bits)),
            None => (text, None),
        };
        let wrong = || format!("`{text}` is no address or range such as 10.0.0.0/8");
        let net: IpAddr = net.parse().map_err(|_| wrong())?;
        let most = if net.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), |b| b.parse().map_err(|_| wrong()))?;
        if bits > most {
            return Err(wrong());
        }
        Ok(Cidr { net, bits })
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.net, self.bits)
    }
}

impl Serialize for Cidr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Cidr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}

impl Setting for Cidr {
    fn kind() -> String {
        "address range".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_contains_what_shares_its_prefix() {
        let cases = [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.1.2.3", "10.1.2.3", true),
            ("10.1.2.3", "10.1.2.2", false),
            ("0.0.0.0/0", "255.1.2.3", true),
            ("::/0", "fe80::1", true),
            ("fe80::/10", "fe80::1", true),
            ("fe80::/10", "::1", false),
            ("0.0.0.0/0", "::1", false),
        ];
        for (net, ip, inside) in cases {
            let net: Cidr = net.parse().unwrap();
            assert_eq!(net.contains(ip.parse().unwrap()), inside, "{net} {ip}");
        }
        for wrong in [
            "",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/",
            "host/8",
            "10.0.0.0/-1",
        ] {
            assert!(wrong.parse::<Cidr>().is_err(), "{wrong}");
        }
    }
}
