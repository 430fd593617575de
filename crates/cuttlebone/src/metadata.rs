//! What a daemon tells of the machine it runs on, under Ceph's key names (`ceph osd metadata`, `ceph mon metadata`).

use std::collections::BTreeMap;
use std::fs;

/// Facts about this machine; what cannot be read is left out.
pub fn of_host(hostname: &str) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    let mut put = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            out.insert(key.to_owned(), value);
        }
    };
    let version = format!("ceph version 16.2.15 (cuttlebone {}) pacific (stable)", env!("CARGO_PKG_VERSION"));
    put("ceph_version", Some(version));
    put("ceph_version_short", Some("16.2.15".into()));
    put("ceph_release", Some("pacific".into()));
    put("hostname", Some(hostname.to_owned()));
    put("arch", Some(std::env::consts::ARCH.into()));
    put("os", Some("Linux".into()));
    put("kernel_version", first_line("/proc/sys/kernel/osrelease"));
    put("kernel_description", first_line("/proc/sys/kernel/version"));
    put("cpu", value_of("/proc/cpuinfo", "model name"));
    put("mem_total_kb", value_of("/proc/meminfo", "MemTotal").map(|v| v.trim_end_matches(" kB").to_owned()));
    put("mem_swap_kb", value_of("/proc/meminfo", "SwapTotal").map(|v| v.trim_end_matches(" kB").to_owned()));
    put("distro", os_release("ID"));
    put("distro_version", os_release("VERSION_ID"));
    put("distro_description", os_release("PRETTY_NAME"));
    out
}

fn first_line(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()?.lines().next().map(|l| l.trim().to_owned())
}

fn value_of(path: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|l| l.starts_with(key))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn os_release(key: &str) -> Option<String> {
    let text = fs::read_to_string("/etc/os-release").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix('='))?;
    Some(line.trim_matches('"').to_owned())
}
