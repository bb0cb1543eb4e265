//! Which addresses count as one client in the limits of each. Pure, no threads.

use std::net::{IpAddr, Ipv6Addr};

/// The network that an address is counted under. An IPv6 host can choose from a whole /64, so that
/// a /64 counts as one client. IPv4-mapped IPv6 addresses count as IPv4; the loopback address is
/// left as it is.
pub(crate) fn network_of(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        client => client,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_host_may_choose_counts_as_one() {
        for (client, network) in [
            ("192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("::1", "::1"),
            ("::ffff:127.0.0.1", "127.0.0.1"),
        ] {
            let client: IpAddr = client.parse().unwrap();
            assert_eq!(network_of(client), network.parse::<IpAddr>().unwrap(), "{client}");
        }
    }
}
