//! Distinguishes public addresses from all others.
//!
//! The blocks in IANA's special-purpose registries are not public: this machine, private and
//! shared networks, link-local ones with the clouds' metadata services, multicast,
//! documentation, reserved blocks. If an IPv6 address embeds an IPv4 address, the embedded
//! address decides.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns whether everybody on the internet can reach `address`. If so, a connection to it gives nobody
/// access to this machine's own network.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// The IPv4 blocks that are not public, each with its address and its prefix length in bits.
const SPECIAL_V4: [(Ipv4Addr, u32); 16] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),        // this network
    (Ipv4Addr::new(10, 0, 0, 0), 8),       // private
    (Ipv4Addr::new(100, 64, 0, 0), 10),    // shared by carriers; Alibaba's metadata
    (Ipv4Addr::new(127, 0, 0, 0), 8),      // loopback
    (Ipv4Addr::new(168, 63, 129, 16), 32), // Azure's platform, although in a public block
    (Ipv4Addr::new(169, 254, 0, 0), 16),   // link-local; the metadata of AWS and most others
    (Ipv4Addr::new(172, 16, 0, 0), 12),    // private
    (Ipv4Addr::new(192, 0, 0, 0), 24),     // protocols; Oracle's metadata
    (Ipv4Addr::new(192, 0, 2, 0), 24),     // documentation
    (Ipv4Addr::new(192, 88, 99, 0), 24),   // 6to4 relays
    (Ipv4Addr::new(192, 168, 0, 0), 16),   // private
    (Ipv4Addr::new(198, 18, 0, 0), 15),    // benchmarks
    (Ipv4Addr::new(198, 51, 100, 0), 24),  // documentation
    (Ipv4Addr::new(203, 0, 113, 0), 24),   // documentation
    (Ipv4Addr::new(224, 0, 0, 0), 4),      // multicast
    (Ipv4Addr::new(240, 0, 0, 0), 4),      // reserved, and broadcast
];

fn is_public_v4(address: Ipv4Addr) -> bool {
    let within = |(block, length): &(Ipv4Addr, u32)| (address.to_bits() ^ block.to_bits()) >> (32 - length) == 0;
    !SPECIAL_V4.iter().any(within)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let v4 = |high: u16, low: u16| is_public_v4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    match [a, b, c, d, e, f] {
        [0, 0, 0, 0, 0, 0xffff] => v4(g, h),    // mapped
        [0x64, 0xff9b, 0, 0, 0, 0] => v4(g, h), // NAT64, how IPv6-only networks reach IPv4
        [0x2002, ..] => v4(b, c),               // 6to4
        [0x2001, 0..0x200, ..] => false,        // protocols, Teredo among them
        [0x2001, 0xdb8, ..] => false,           // documentation
        [0x3fff, 0..0x1000, ..] => false,       // documentation
        [0x2000..0x4000, ..] => true,           // global unicast
        _ => false,                             // loopback, unique local (AWS's metadata too), link-local, multicast
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn public(text: &str) -> bool {
        is_public(text.parse().unwrap())
    }

    #[test]
    fn internet_addresses_are_public() {
        let addresses = [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.167.255.255",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00:1450::1",
            "2001:4860:4860::8888",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "2002:808:808::1",
        ];
        for address in addresses {
            assert!(public(address), "{address}");
        }
    }

    #[test]
    fn special_purpose_addresses_are_not_public() {
        let addresses = [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.0",
            "10.255.255.255",
            "100.64.0.0",
            "100.100.100.200",
            "127.0.0.1",
            "127.255.255.255",
            "168.63.129.16",
            "169.254.169.254",
            "169.254.170.2",
            "172.16.0.0",
            "172.31.255.255",
            "192.0.0.192",
            "192.168.1.1",
            "198.19.255.255",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::8.8.8.8",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:a00:1::1",
            "2002:7f00:1::",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ];
        for address in addresses {
            assert!(!public(address), "{address}");
        }
    }
}
