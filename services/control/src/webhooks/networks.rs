//! Where deliveries may go: to public addresses, and to networks that the operator allows.
//! Never: a judgement by name; what is judged is the address that is connected to.

use std::net::IpAddr;

use ipnet::IpNet;

use super::public::is_public;

/// Networks that deliveries may go to though they are not public.
#[derive(Debug, Clone, Default)]
pub(crate) struct Networks(Vec<IpNet>);

impl Networks {
    pub(crate) fn new(allowed: &[IpNet]) -> Self {
        Self(allowed.to_vec())
    }

    /// Whether the operator allows any.
    pub(super) const fn are_allowed(&self) -> bool {
        !self.0.is_empty()
    }

    /// Whether the operator allows this address.
    pub(super) fn allow(&self, address: IpAddr) -> bool {
        // An IPv4 address in the clothes of IPv6 is what it is inside.
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }

    /// Whether a delivery may go to this address.
    pub(super) fn permit(&self, address: IpAddr) -> bool {
        is_public(address) || self.allow(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_operator_allows_is_permitted_in_every_spelling() {
        let allowed = ["10.0.0.0/8", "::1/128"].map(|network| network.parse().unwrap());
        let networks = Networks::new(&allowed);
        let permit = |address: &str| networks.permit(address.parse().unwrap());
        assert!(permit("10.1.2.3") && permit("::ffff:10.1.2.3") && permit("::1"));
        assert!(!permit("127.0.0.1") && !permit("::ffff:127.0.0.1") && !permit("fe80::1"));
    }
}
