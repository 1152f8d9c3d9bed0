//! Classifies addresses of the public internet.
//!
//! Invariant: no address is public that is translated to a non-public one.

use std::net::IpAddr;

use ipnet::{Ipv4Net, Ipv6Net};

const fn v4(a: u8, b: u8, c: u8, length: u8) -> Ipv4Net {
    Ipv4Net::new_assert(std::net::Ipv4Addr::new(a, b, c, 0), length)
}

const fn v6(first: u16, second: u16, length: u8) -> Ipv6Net {
    Ipv6Net::new_assert(
        std::net::Ipv6Addr::new(first, second, 0, 0, 0, 0, 0, 0),
        length,
    )
}

/// Non-public IPv4 addresses: the registry of special-purpose addresses (RFC 6890), and addresses
/// that clouds use internally.
const NOT_PUBLIC_V4: [Ipv4Net; 16] = [
    v4(0, 0, 0, 8),
    v4(10, 0, 0, 8),
    v4(100, 64, 0, 10),
    v4(127, 0, 0, 8),
    v4(169, 254, 0, 16),
    v4(172, 16, 0, 12),
    v4(192, 0, 0, 24),
    v4(192, 0, 2, 24),
    v4(192, 88, 99, 24),
    v4(192, 168, 0, 16),
    v4(198, 18, 0, 15),
    v4(198, 51, 100, 24),
    v4(203, 0, 113, 24),
    v4(224, 0, 0, 4),
    v4(240, 0, 0, 4),
    // The metadata service of Azure, although it is in a public range.
    v4(168, 63, 129, 24),
];

/// The only block of IPv6 with allocated unicast addresses.
const ALLOCATED_V6: Ipv6Net = v6(0x2000, 0, 3);
/// The parts of it that are not public, or are translated to IPv4.
const NOT_PUBLIC_V6: [Ipv6Net; 4] = [
    v6(0x2001, 0, 23),
    v6(0x2001, 0x0db8, 32),
    v6(0x2002, 0, 16),
    v6(0x3fff, 0, 20),
];

/// Whether an address is public. An IPv4 address that is mapped to IPv6 is not.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !NOT_PUBLIC_V4.iter().any(|net| net.contains(&address)),
        IpAddr::V6(address) => {
            ALLOCATED_V6.contains(&address)
                && !NOT_PUBLIC_V6.iter().any(|net| net.contains(&address))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_purpose_address_is_not_public() {
        fn check(address: &str, public: bool) {
            let found = is_public(address.parse().unwrap());
            assert_eq!(found, public, "{address}");
        }
        for public in [
            "1.1.1.1",
            "172.32.0.1",
            "100.128.0.1",
            "192.0.1.1",
            "9.255.255.255",
        ] {
            check(public, true);
        }
        for public in [
            "2606:4700::1111",
            "2a00:1450:4001::1",
            "2001:4860:4860::8888",
        ] {
            check(public, true);
        }
        for local in [
            "0.0.0.0",
            "0.1.2.3",
            "10.1.2.3",
            "100.64.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.0.2.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "168.63.129.16",
        ] {
            check(local, false);
        }
        for local in [
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:1.1.1.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "3fff::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "5f00::1",
        ] {
            check(local, false);
        }
    }
}
