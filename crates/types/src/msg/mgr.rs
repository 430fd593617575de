//! Messages between daemons, clients and the active manager, and the map that names it.
//!
//! Upstream: src/messages/MMgrOpen.h, MMgrConfigure.h, MMgrReport.h, MMgrClose.h, MMgrMap.h.

use super::{RawMessage, WireMessage, message};
use bytes::Bytes;
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use std::collections::BTreeMap;

/// The MgrMap, encoded; the whole front.
#[derive(Debug, Clone, PartialEq)]
pub struct MMgrMap {
    pub map: Bytes,
}
impl WireMessage for MMgrMap {
    const KIND: u16 = 1796;
    const VERSION: u16 = 1;
    const PRIORITY: u16 = 196;

    fn to_raw(&self, _: u64) -> RawMessage {
        RawMessage { front: self.map.clone(), ..Self::blank() }
    }

    fn from_raw(raw: &RawMessage) -> Result<Self, DecodeError> {
        Ok(MMgrMap { map: raw.front.clone() })
    }
}

/// A service daemon (radosgw, rbd-mirror, ...) introduces itself.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MMgrOpen {
    pub daemon_name: String,
    pub service_name: String,
    /// What it is and how it fares, if it is a service daemon.
    pub service: Option<ServiceDaemon>,
    /// Options in force (encoded map) and defaults; opaque here.
    pub config: Bytes,
    pub config_defaults: Bytes,
}

/// A service daemon's description of itself.
#[derive(Debug, Clone, PartialEq, Default, Encode, Decode)]
pub struct ServiceDaemon {
    pub metadata: BTreeMap<String, String>,
    pub status: BTreeMap<String, String>,
}

impl WireMessage for MMgrOpen {
    const KIND: u16 = 1792;
    const VERSION: u16 = 3;

    fn to_raw(&self, features: u64) -> RawMessage {
        let mut e = Encoder::new(features);
        // The flag and what follows it are laid out as an optional value is.
        e.put(&self.daemon_name).put(&self.service_name).put(&self.service);
        e.put(&self.config).put(&self.config_defaults);
        RawMessage { front: e.finish(), ..Self::blank() }
    }

    fn from_raw(raw: &RawMessage) -> Result<Self, DecodeError> {
        let mut d = Decoder::shared(&raw.front);
        let mut out = MMgrOpen { daemon_name: d.get()?, ..MMgrOpen::default() };
        if raw.version >= 2 {
            (out.service_name, out.service) = (d.get()?, d.get()?);
        }
        if raw.version >= 3 {
            (out.config, out.config_defaults) = (d.get()?, d.get()?);
        }
        Ok(out)
    }
}

/// How often, and which counters, to report. Queries for per-client figures are never asked, and skipped when read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MMgrConfigure {
    pub stats_period_s: u32,
    /// Counters below this priority are left out.
    pub stats_threshold: u32,
}
impl WireMessage for MMgrConfigure {
    const KIND: u16 = 1793;
    const VERSION: u16 = 4;

    fn to_raw(&self, features: u64) -> RawMessage {
        let mut e = Encoder::new(features);
        e.put(&self.stats_period_s).put(&self.stats_threshold).put(&0u32).put(&false);
        RawMessage { front: e.finish(), ..Self::blank() }
    }

    fn from_raw(raw: &RawMessage) -> Result<Self, DecodeError> {
        let mut d = Decoder::shared(&raw.front);
        let stats_period_s = d.get()?;
        Ok(MMgrConfigure { stats_period_s, stats_threshold: if raw.version >= 2 { d.get()? } else { 0 } })
    }
}

message! {
    MMgrClose = 1800, v 1, c 1, p 127 { daemon_name: String, service_name: String, }
}

/// A service daemon's report. Counters are described once and then sent packed; they are kept as bytes here.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MMgrReport {
    pub daemon_name: String,
    pub service_name: String,
    /// Present when it changed.
    pub status: Option<BTreeMap<String, String>>,
}
impl WireMessage for MMgrReport {
    const KIND: u16 = 1794;
    const VERSION: u16 = 9;

    fn to_raw(&self, features: u64) -> RawMessage {
        let mut e = Encoder::new(features);
        // No counters declared, packed or withdrawn.
        e.put(&self.daemon_name).put(&0u32).put(&0u32).put(&0u32).put(&self.service_name).put(&self.status);
        // No health metrics, config, query reports, task status or metric report.
        e.put(&0u32).put(&0u32).put(&0u32).put(&false).put(&false);
        RawMessage { front: e.finish(), ..Self::blank() }
    }

    fn from_raw(raw: &RawMessage) -> Result<Self, DecodeError> {
        let mut d = Decoder::shared(&raw.front);
        let mut out = MMgrReport { daemon_name: d.get()?, ..MMgrReport::default() };
        let _declared: Vec<CounterType> = d.get()?;
        let _packed: Bytes = d.get()?;
        if raw.version >= 2 {
            let _withdrawn: Vec<String> = d.get()?;
        }
        if raw.version >= 3 {
            (out.service_name, out.status) = (d.get()?, d.get()?);
        }
        Ok(out)
    }
}

/// A counter's description, skipped.
struct CounterType;
impl Decode for CounterType {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.envelope("PerfCounterType", 3, |_, _| Ok(CounterType))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::round_trip;
    use super::*;

    #[test]
    fn a_service_daemon_introduces_itself_and_reports() {
        let map = BTreeMap::from([("k".to_string(), "v".to_string())]);
        round_trip(&MMgrOpen {
            daemon_name: "a".into(),
            service_name: "rgw".into(),
            service: Some(ServiceDaemon { metadata: map.clone(), status: BTreeMap::new() }),
            ..MMgrOpen::default()
        });
        round_trip(&MMgrReport { daemon_name: "a".into(), service_name: "rgw".into(), status: Some(map) });
        assert_eq!(round_trip(&MMgrConfigure { stats_period_s: 5, stats_threshold: 5 }).front.len(), 13);
    }
}
