//! Addresses as every map's dump shows them.

use crate::json::{array, Obj};
use crate::{AddrKind, AddrVec, EntityAddr};
use serde_json::Value;

impl EntityAddr {
    /// `{"type": "v2", "addr": "127.0.0.1:6800", "nonce": 12}`.
    pub fn dump_json(&self) -> Value {
        let kind = match self.kind {
            AddrKind::NONE => "none",
            AddrKind::LEGACY => "v1",
            AddrKind::MSGR2 => "v2",
            AddrKind::ANY => "any",
            AddrKind::CIDR => "cidr",
            _ => "???",
        };
        let mut o = Obj::new();
        o.put("type", kind).put("addr", self.sock_string()).put("nonce", self.nonce);
        o.done()
    }
}

impl AddrVec {
    /// `{"addrvec": [...]}`.
    pub fn dump_json(&self) -> Value {
        let mut o = Obj::new();
        o.put("addrvec", array(self.0.iter().map(EntityAddr::dump_json)));
        o.done()
    }
}
