//! `network 10.0.0.0/8`: where a grant holds.

use std::net::IpAddr;

/// True if `addr` lies in `network`; a network that makes no sense holds nobody.
pub fn contains(network: &str, addr: IpAddr) -> bool {
    let Some((base, bits)) = network.split_once('/') else { return false };
    let base = base.trim_start_matches('[').trim_end_matches(']');
    let (Ok(base), Ok(bits)) = (base.parse::<IpAddr>(), bits.parse::<u32>()) else { return false };
    match (base, addr) {
        (IpAddr::V4(base), IpAddr::V4(addr)) => same(u32::from(base).into(), u32::from(addr).into(), bits, 32),
        (IpAddr::V6(base), IpAddr::V6(addr)) => same(base.into(), addr.into(), bits, 128),
        _ => false,
    }
}

fn same(a: u128, b: u128, bits: u32, width: u32) -> bool {
    match bits {
        0 => true,
        bits if bits >= width => a == b,
        bits => (a ^ b) >> (width - bits) == 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_of_both_families_match_and_nonsense_does_not() {
        let ip = |s: &str| s.parse().unwrap();
        assert!(contains("10.0.0.0/8", ip("10.200.1.2")));
        assert!(!contains("10.0.0.0/8", ip("11.0.0.1")));
        assert!(contains("0.0.0.0/0", ip("11.0.0.1")) && !contains("0.0.0.0/0", ip("::1")));
        assert!(contains("127.0.0.1/32", ip("127.0.0.1")) && !contains("127.0.0.1/32", ip("127.0.0.2")));
        assert!(contains("fe80::/10", ip("febf::1")) && contains("[fe80::]/10", ip("fe80::1")));
        for bad in ["", "10.0.0.0", "10.0.0.0/x", "x/8", "/"] {
            assert!(!contains(bad, ip("10.0.0.0")), "{bad}");
        }
    }
}
