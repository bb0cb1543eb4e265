//! IPv4 addresses within IPv6 ones, by which a destination could be reached in another form. Pure,
//! no threads.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address, and the IPv4 addresses that it may translate to.
pub(crate) fn forms(address: IpAddr) -> impl Iterator<Item = IpAddr> {
    let inner = match address {
        IpAddr::V4(_) => [None; 5],
        IpAddr::V6(address) => embedded_v4(address),
    };
    // One place may hold no embedded address while others of the same range do.
    let inner = inner.into_iter().flatten().filter(|inner| !inner.is_unspecified());
    std::iter::once(address).chain(inner.map(IpAddr::V4))
}

/// IPv4 addresses embedded in an IPv6 one, by its prefix, or in its last half by ISATAP (RFC 5214
/// §6.1) whatever the prefix: `0000:5efe` before the address, with two bits that may be set.
fn embedded_v4(v6: Ipv6Addr) -> [Option<Ipv4Addr>; 5] {
    let [.., e, f, g, h] = v6.segments();
    let is_isatap = (e & !0x0300, f) == (0, 0x5efe);
    let [a, b, c, d] = by_prefix(v6);
    [a, b, c, d, is_isatap.then(|| join(g, h))]
}

/// By its prefix: mapped (RFC 4291 §2.5.5), translated (RFC 2765 §2.1), NAT64 (RFC 6052 §2.1), 6to4
/// (RFC 3056 §2) or Teredo (RFC 4380 §4), which has its server's and, with all bits inverted, its
/// client's. Within the range for local NAT64 (RFC 8215) the prefix may have any of four lengths,
/// which cannot be told apart, so all four are returned.
fn by_prefix(v6: Ipv6Addr) -> [Option<Ipv4Addr>; 4] {
    let [a, b, c, d, e, f, g, h] = v6.segments();
    let one = |v4| [Some(v4), None, None, None];
    match [a, b, c, d, e, f] {
        [0, 0, 0, 0, 0, 0xffff] | [0, 0, 0, 0, 0xffff, 0] => one(join(g, h)),
        [0x64, 0xff9b, 0, 0, 0, 0] => one(join(g, h)),
        [0x64, 0xff9b, 1, ..] => {
            // RFC 6052 §2.2: the octet behind the first 64 bits is skipped.
            let [_, e] = e.to_be_bytes();
            let ([_, d0], [f0, f1], [g0, _]) = (d.to_be_bytes(), f.to_be_bytes(), g.to_be_bytes());
            let v4 = |a, b, c, d| Some(Ipv4Addr::new(a, b, c, d));
            let by_48 = Some(join(d, u16::from_be_bytes([e, f0])));
            [by_48, v4(d0, e, f0, f1), v4(e, f0, f1, g0), Some(join(g, h))]
        }
        [0x2002, ..] => one(join(b, c)),
        [0x2001, 0, ..] => [Some(join(c, d)), Some(join(!g, !h)), None, None],
        [0, 0, 0, 0, 0, 0] if (g, h) > (0, 1) => one(join(g, h)),
        _ => [None; 4],
    }
}

fn join(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(high) << 16 | u32::from(low))
}
