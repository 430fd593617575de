//! What a process knows before it has spoken to anyone: flags over ceph.conf over defaults.

use admin::conf::{Conf, MetaVars, canonical_name, expand};
use anyhow::{Context, Result, bail};
use auth::{CryptoKey, Keyring};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use types::{AddrKind, AddrVec, EntityAddr, EntityKind, EntityName};
use uuid::Uuid;

pub const DEFAULT_CONF: &str = "/etc/ceph/ceph.conf";
const PORT_MSGR2: u16 = 3300;
const PORT_LEGACY: u16 = 6789;

/// Where stock keeps things, for deployments whose ceph.conf does not say.
const DEFAULTS: [(&str, &str); 6] = [
    ("run_dir", "/var/run/ceph"),
    ("admin_socket", "$run_dir/$cluster-$name.asok"),
    ("log_file", "/var/log/ceph/$cluster-$name.log"),
    ("mon_data", "/var/lib/ceph/mon/$cluster-$id"),
    ("osd_data", "/var/lib/ceph/osd/$cluster-$id"),
    ("bluestore_block_size", "107374182400"),
];

/// The configuration of one entity.
#[derive(Debug, Clone)]
pub struct DaemonConfig {
    pub name: EntityName,
    conf: Conf,
    overrides: BTreeMap<String, String>,
    /// What the monitors said in an earlier life: it counts where nothing else is set.
    told: BTreeMap<String, String>,
    vars: MetaVars,
}

impl DaemonConfig {
    /// Reads the file (by default /etc/ceph/ceph.conf). Errors: it is missing or cannot be understood.
    pub fn load(kind: EntityKind, id: &str, path: Option<&Path>, overrides: &[(String, String)]) -> Result<Self> {
        let path = path.unwrap_or(Path::new(DEFAULT_CONF));
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {} (-c names another file)", path.display()))?;
        let conf = Conf::parse(&text).with_context(|| path.display().to_string())?;
        let name = EntityName::new(kind, id);
        let vars = MetaVars { cluster: "ceph".into(), name: name.clone(), host: hostname(), pid: std::process::id() };
        let overrides = overrides.iter().map(|(k, v)| (canonical_name(k), v.clone())).collect();
        Ok(DaemonConfig { name, conf, overrides, told: BTreeMap::new(), vars })
    }

    /// The same, where the monitors said so once.
    pub fn with_told(self, told: BTreeMap<String, String>) -> Self {
        DaemonConfig { told, ..self }
    }

    /// An option's value with everything it refers to filled in.
    pub fn get(&self, option: &str) -> Option<String> {
        self.get_within(option, 8)
    }

    /// Every option that the flags or the file set.
    pub fn options(&self) -> BTreeMap<String, String> {
        let mut out: BTreeMap<String, String> = self.conf.options(&self.name).into_keys().filter_map(|k| Some((k.to_owned(), self.get(k)?))).collect();
        out.extend(self.overrides.keys().filter_map(|k| Some((k.clone(), self.get(k)?))));
        out
    }

    /// The file itself.
    pub fn file(&self) -> &Conf {
        &self.conf
    }

    /// Options given as flags.
    pub fn overrides(&self) -> &BTreeMap<String, String> {
        &self.overrides
    }

    /// An option that is a path; `None` if unset or empty.
    pub fn path(&self, option: &str) -> Result<Option<PathBuf>> {
        Ok(self.get(option).filter(|v| !v.is_empty()).map(PathBuf::from))
    }

    /// An option that is a path and must be set.
    pub fn required_path(&self, option: &str) -> Result<PathBuf> {
        self.path(option)?.with_context(|| format!("{option} is not set for {}", self.name))
    }

    /// A size in bytes, written as `10G` or a number.
    pub fn size(&self, option: &str) -> Result<u64> {
        let text = self.get(option).with_context(|| format!("{option} is not set"))?;
        parse_bytes(&text).with_context(|| format!("{option} = {text:?} is not a size"))
    }

    /// The cluster's id, if the file has it.
    pub fn fsid(&self) -> Result<Option<Uuid>> {
        self.get("fsid").map(|text| text.parse().with_context(|| format!("fsid = {text:?}"))).transpose()
    }

    /// Our key from the first keyring that has it. Errors name the files that were tried.
    pub fn key(&self) -> Result<CryptoKey> {
        if let Some(text) = self.get("key") {
            return text.parse().with_context(|| format!("key of {}", self.name));
        }
        let files = self.keyrings();
        for file in &files {
            let Ok(text) = std::fs::read_to_string(file) else { continue };
            let keyring: Keyring = text.parse().with_context(|| file.clone())?;
            if let Some(key) = keyring.key(&self.name) {
                return Ok(key.clone());
            }
        }
        bail!("no key for {} in {}", self.name, files.join(", "))
    }

    /// Where our key may be, first choice first.
    pub fn keyrings(&self) -> Vec<String> {
        let default = match self.name.kind {
            EntityKind::MON => "$mon_data/keyring",
            EntityKind::OSD => "$osd_data/keyring",
            _ => "/etc/ceph/$cluster.$name.keyring,/etc/ceph/$cluster.keyring,/etc/ceph/keyring",
        };
        let list = self.get("keyring").unwrap_or_else(|| self.filled(default, 8));
        list.split([',', ' ', ';']).filter(|f| !f.is_empty()).map(str::to_owned).collect()
    }

    /// `mon_host`, one entry per monitor.
    pub fn mon_addrs(&self) -> Result<Vec<AddrVec>> {
        let text = self.get("mon_host").context("mon host is not set: where are the monitors?")?;
        parse_mon_host(&text).with_context(|| format!("mon host = {text:?}"))
    }

    /// This machine's name.
    pub fn host(&self) -> &str {
        &self.vars.host
    }

    fn get_within(&self, option: &str, depth: u32) -> Option<String> {
        let option = canonical_name(option);
        let default = || DEFAULTS.iter().find(|(name, _)| *name == option).map(|(_, value)| *value);
        let raw = self.overrides.get(&option).map(String::as_str).or_else(|| self.conf.get(&self.name, &option));
        let raw = raw.or_else(|| self.told.get(&option).map(String::as_str)).or_else(default)?;
        Some(self.filled(raw, depth))
    }

    /// Options may name options; a circle ends where the depth does.
    fn filled(&self, raw: &str, depth: u32) -> String {
        let nested = |name: &str| if depth == 0 { None } else { self.get_within(name, depth - 1) };
        expand(raw, &self.vars, &nested)
    }
}

/// This machine's short name.
fn hostname() -> String {
    let full = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    full.trim().split('.').next().filter(|h| !h.is_empty()).unwrap_or("localhost").to_owned()
}

/// Bytes, with an optional suffix K, M, G, T (powers of 1024, `iB` and `B` allowed).
pub fn parse_bytes(text: &str) -> Result<u64> {
    let text = text.trim().trim_end_matches('B').trim_end_matches('i');
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..].to_ascii_uppercase()[..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        other => bail!("unknown unit {other:?}"),
    };
    let size = digits.trim().parse::<u64>().ok().and_then(|n| n.checked_mul(1 << shift));
    size.context("not a number of bytes that fits")
}

/// `[v2:1.2.3.4:3300,v1:1.2.3.4:6789],[...]`, or addresses with or without a port.
pub fn parse_mon_host(text: &str) -> Result<Vec<AddrVec>> {
    let mut out = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        // Brackets around several addresses; those of an IPv6 address hold no `v1:` or `v2:`.
        let vector = rest.strip_prefix('[').filter(|r| r.starts_with("v1:") || r.starts_with("v2:"));
        let (entry, after) = match vector {
            Some(inner) => {
                let (entry, after) = inner.split_at(vector_end(inner).context("a [ without its ]")?);
                (entry, &after[1..])
            }
            None => rest.split_at(rest.find([',', ' ', ';']).unwrap_or(rest.len())),
        };
        let addrs = entry.split(',').map(parse_addr).collect::<Result<Vec<_>>>()?;
        out.push(AddrVec(addrs.into_iter().flatten().collect()));
        rest = after.trim_start_matches([',', ' ', ';']);
    }
    if out.is_empty() {
        bail!("no address in it");
    }
    Ok(out)
}

/// The `]` that closes the vector: the first one at depth zero, for IPv6 addresses have brackets of their own.
fn vector_end(inner: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in inner.char_indices() {
        match c {
            '[' => depth += 1,
            ']' if depth == 0 => return Some(at),
            ']' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// One address; without `v1:` or `v2:` and without a port it is both.
fn parse_addr(text: &str) -> Result<Vec<EntityAddr>> {
    let text = text.trim().split('/').next().unwrap_or_default();
    let (kinds, addr): (&[_], _) = match text.split_once(':') {
        Some(("v1", addr)) => (&[(AddrKind::LEGACY, PORT_LEGACY)], addr),
        Some(("v2", addr)) => (&[(AddrKind::MSGR2, PORT_MSGR2)], addr),
        _ => (&[(AddrKind::MSGR2, PORT_MSGR2), (AddrKind::LEGACY, PORT_LEGACY)], text),
    };
    if let Ok(sock) = addr.parse::<SocketAddr>() {
        // A port without a protocol: the well-known legacy port means v1, any other v2.
        let legacy = kinds.len() == 2 && sock.port() == PORT_LEGACY;
        let kind = if legacy { AddrKind::LEGACY } else { kinds[0].0 };
        return Ok(vec![EntityAddr { kind, nonce: 0, sock: Some(sock) }]);
    }
    let ip: IpAddr = match addr.trim_matches(['[', ']']) {
        "localhost" => IpAddr::from([127, 0, 0, 1]),
        ip => ip.parse().with_context(|| format!("{addr:?} is not an IP address"))?,
    };
    Ok(kinds.iter().map(|(kind, port)| EntityAddr { kind: *kind, nonce: 0, sock: Some(SocketAddr::new(ip, *port)) }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<String> {
        parse_mon_host(text).unwrap().iter().map(|a| a.to_string()).collect()
    }

    #[test]
    fn mon_host_in_every_spelling() {
        assert_eq!(shown("[v2:127.0.0.1:13300,v1:127.0.0.1:13301]"), ["[v2:127.0.0.1:13300/0,v1:127.0.0.1:13301/0]"]);
        assert_eq!(shown("10.0.0.1,10.0.0.2"), ["[v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0]", "[v2:10.0.0.2:3300/0,v1:10.0.0.2:6789/0]"]);
        assert_eq!(shown("[v2:[::1]:3300],v2:1.2.3.4:5"), ["v2:[::1]:3300/0", "v2:1.2.3.4:5/0"]);
        assert!(parse_mon_host("").is_err());
        assert!(parse_mon_host("[v2:1.2.3.4").is_err());
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_bytes("10G").unwrap(), 10 << 30);
        assert_eq!(parse_bytes("4096").unwrap(), 4096);
        assert!(parse_bytes("ten").is_err());
    }
}
