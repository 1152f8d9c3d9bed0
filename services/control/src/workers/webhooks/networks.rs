//! The addresses that deliveries may connect to: public ones, and networks that the
//! operator allows.

use std::net::IpAddr;

use ipnet::IpNet;

use super::public_address::is_public;

/// Non-public networks that the operator allows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Networks(Vec<IpNet>);

impl Networks {
    pub(crate) fn new(allowed: &[IpNet]) -> Self {
        Self(allowed.to_vec())
    }

    /// Whether the operator allows no network.
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the operator allows this address.
    pub(super) fn allows(&self, address: IpAddr) -> bool {
        // An IPv4 address that is mapped to IPv6 counts as IPv4.
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }

    /// Whether a delivery may connect to this address.
    pub(super) fn permits(&self, address: IpAddr) -> bool {
        is_public(address) || self.allows(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowed_network_is_permitted_in_every_notation() {
        let allowed = ["10.0.0.0/8", "::1/128"].map(|network| network.parse().unwrap());
        let networks = Networks::new(&allowed);
        let permit = |address: &str| networks.permits(address.parse().unwrap());
        assert!(permit("10.1.2.3") && permit("::ffff:10.1.2.3") && permit("::1"));
        assert!(!permit("127.0.0.1") && !permit("::ffff:127.0.0.1") && !permit("fe80::1"));
    }
}
