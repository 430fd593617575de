//! Where an OSD listens: for clients, and for other OSDs, which may have a network of their own.
//!
//! Upstream: src/common/pick_address.cc; doc/rados/configuration/network-config-ref.rst.

use crate::config::DaemonConfig;
use anyhow::{Context, Result, bail};
use if_addrs::Interface;
use ipnet::IpNet;
use std::net::{IpAddr, SocketAddr, UdpSocket};

/// Addresses to listen at; port 0 is any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Places {
    pub public: SocketAddr,
    /// `None`: other OSDs come where clients do.
    pub cluster: Option<SocketAddr>,
}

impl Places {
    /// What `public_addr`, `cluster_addr`, `public_network` and `cluster_network` say; without any of them the address that
    /// this machine has towards the monitors. Errors: a value that is no address or network, or no interface in a network.
    pub fn of_osd(config: &DaemonConfig) -> Result<Self> {
        let interfaces = if_addrs::get_if_addrs().context("reading this machine's addresses")?;
        let public = match chosen(config, ["public_addr", "public_network"], &interfaces)? {
            Some(addr) => addr,
            None => SocketAddr::new(towards_monitors(config)?, 0),
        };
        let cluster = chosen(config, ["cluster_addr", "cluster_network"], &interfaces)?;
        // One port serves both where they are the same.
        let cluster = cluster.filter(|c| c.ip() != public.ip() || (c.port() != 0 && c.port() != public.port()));
        Ok(Places { public, cluster })
    }
}

/// The name of the interface that has an address.
pub fn interface_of(ip: IpAddr) -> Option<String> {
    if_addrs::get_if_addrs().ok()?.into_iter().find(|i| i.ip() == ip).map(|i| i.name)
}

/// What the first option names, or else an address of ours in one of the networks of the second.
fn chosen(config: &DaemonConfig, [addr, network]: [&str; 2], interfaces: &[Interface]) -> Result<Option<SocketAddr>> {
    let get = |option: &str| config.get(option).filter(|text| !matches!(text.trim(), "" | "-"));
    if let Some(text) = get(addr) {
        return Ok(Some(address(&text).with_context(|| format!("{addr} = {text:?} is not an address"))?));
    }
    let Some(text) = get(network) else { return Ok(None) };
    let networks: Vec<IpNet> = text
        .split([',', ' ', ';'])
        .filter(|net| !net.is_empty())
        .map(|net| net.parse().with_context(|| format!("{network} = {text:?}: {net:?} is not a network, such as 10.0.0.0/24")))
        .collect::<Result<_>>()?;
    match first_in(&networks, interfaces.iter().map(Interface::ip)) {
        Some(ip) => Ok(Some(SocketAddr::new(ip, 0))),
        None => {
            let have: Vec<String> = interfaces.iter().map(|i| i.ip().to_string()).collect();
            bail!("{network} = {text:?}: this machine has no address in it, only {}", have.join(", "))
        }
    }
}

/// The first of `addrs` that is in the first network that has one, and that others can reach: loopback only where it was asked for.
fn first_in(networks: &[IpNet], addrs: impl Iterator<Item = IpAddr> + Clone) -> Option<IpAddr> {
    let is_link_local = |ip: &IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    let fits = |net: &IpNet, ip: &IpAddr| net.contains(ip) && !is_link_local(ip) && (!ip.is_loopback() || net.network().is_loopback());
    networks.iter().find_map(|net| addrs.clone().find(|ip| fits(net, ip)))
}

/// `1.2.3.4`, `1.2.3.4:6801`, `[::1]:6801`, `v2:1.2.3.4:6801/0`.
fn address(text: &str) -> Option<SocketAddr> {
    let text = text.trim();
    let text = text.strip_prefix("v2:").unwrap_or(text);
    let text = text.split_once('/').map_or(text, |(addr, _nonce)| addr);
    let ip = text.trim_start_matches('[').trim_end_matches(']').parse().map(|ip| SocketAddr::new(ip, 0));
    ip.ok().or_else(|| text.parse().ok())
}

/// Our own address on the way to the first monitor. Nothing is sent.
fn towards_monitors(config: &DaemonConfig) -> Result<IpAddr> {
    let mons = config.mon_addrs()?;
    let mon = mons.iter().filter_map(|m| m.msgr2()?.sock).next().context("mon_host names no address")?;
    let any: SocketAddr = if mon.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
    let route = || {
        let socket = UdpSocket::bind(any)?;
        socket.connect(mon)?;
        socket.local_addr()
    };
    Ok(route().with_context(|| format!("there is no way to the monitor at {mon}; set public_addr or public_network"))?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_stock_writes_them() {
        for (text, addr) in [
            ("10.1.2.3", "10.1.2.3:0"),
            ("10.1.2.3:6801", "10.1.2.3:6801"),
            ("v2:10.1.2.3:6801/77", "10.1.2.3:6801"),
            (" 10.1.2.3/0 ", "10.1.2.3:0"),
            ("fd00::3", "[fd00::3]:0"),
            ("[fd00::3]", "[fd00::3]:0"),
            ("[fd00::3]:6801", "[fd00::3]:6801"),
        ] {
            assert_eq!(address(text).unwrap().to_string(), addr, "{text}");
        }
        for text in ["", "host", "10.1.2", "10.1.2.3:port", "v1:10.1.2.3:1"] {
            assert_eq!(address(text), None, "{text}");
        }
    }

    #[test]
    fn the_first_network_that_has_an_address_here_counts() {
        let addrs: Vec<IpAddr> = ["127.0.0.1", "::1", "fe80::9", "192.168.7.5", "10.0.0.9", "fd00::9"].map(|a| a.parse().unwrap()).into();
        let chosen = |nets: &[&str]| {
            let nets: Vec<IpNet> = nets.iter().map(|n| n.parse().unwrap()).collect();
            first_in(&nets, addrs.iter().copied()).map(|ip| ip.to_string())
        };
        assert_eq!(chosen(&["10.0.0.0/24"]).as_deref(), Some("10.0.0.9"));
        assert_eq!(chosen(&["172.16.0.0/12", "fd00::/8", "192.168.0.0/16"]).as_deref(), Some("fd00::9"));
        assert_eq!(chosen(&["10.0.1.0/24"]), None);
        assert_eq!(chosen(&["0.0.0.0/0"]).as_deref(), Some("192.168.7.5"), "loopback is no way to others");
        assert_eq!(chosen(&["127.0.0.0/8"]).as_deref(), Some("127.0.0.1"));
        assert_eq!(chosen(&["fe80::/10", "::/0"]).as_deref(), Some("fd00::9"));
    }
}
