//! Key under which limits count an address.

use std::net::IpAddr;

/// Address as limits count it: IPv4 whole, IPv6 by its network of 64 bits, because the owner of one address has all of
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressKey {
    /// An IPv4 address, also one that is written as IPv6 (RFC 4291, section 2.5.5.2).
    V4(u32),
    /// The first 64 bits of an IPv6 address.
    V6(u64),
}

impl AddressKey {
    /// Returns the key of an address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address.to_bits()),
            IpAddr::V6(address) => Self::V6(u64::try_from(address.to_bits() >> 64).unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_network_of_64_bits_count_as_one_and_mapped_ones_as_their_own() {
        let key = |text: &str| AddressKey::of(text.parse().expect("an address"));
        assert_eq!(key("2001:db8:1:2::1"), key("2001:db8:1:2:ffff:ffff:ffff:ffff"));
        assert_ne!(key("2001:db8:1:2::1"), key("2001:db8:1:3::1"));
        assert_eq!(key("::ffff:192.0.2.1"), key("192.0.2.1"));
        assert_ne!(key("192.0.2.1"), key("192.0.2.2"));
        assert_ne!(key("::"), key("0.0.0.0"));
    }
}
