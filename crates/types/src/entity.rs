//! Who talks: kinds of daemons, names with keys, and numbered instances.

use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use std::fmt;
use std::str::FromStr;

/// What an entity is (`CEPH_ENTITY_TYPE_*`); the values are bits, and masks of them appear in tickets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EntityKind(pub u8);

impl EntityKind {
    pub const MON: Self = EntityKind(1);
    pub const MDS: Self = EntityKind(2);
    pub const OSD: Self = EntityKind(4);
    pub const CLIENT: Self = EntityKind(8);
    pub const MGR: Self = EntityKind(16);
    pub const AUTH: Self = EntityKind(32);

    /// `mon`, `osd`, ...; `unknown` for what is none of them.
    pub fn name(self) -> &'static str {
        match self {
            Self::MON => "mon",
            Self::MDS => "mds",
            Self::OSD => "osd",
            Self::CLIENT => "client",
            Self::MGR => "mgr",
            Self::AUTH => "auth",
            _ => "unknown",
        }
    }

    /// The kind named `s`.
    pub fn from_name(s: &str) -> Option<Self> {
        [Self::MON, Self::MDS, Self::OSD, Self::CLIENT, Self::MGR, Self::AUTH].into_iter().find(|k| k.name() == s)
    }
}

/// A name that owns a key (`EntityName`), `client.admin`; encoded with a 32-bit kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EntityName {
    pub kind: EntityKind,
    pub id: String,
}

impl EntityName {
    pub fn new(kind: EntityKind, id: impl Into<String>) -> Self {
        EntityName { kind, id: id.into() }
    }

    /// `mon.`: whose key all monitors share.
    pub fn monitors() -> Self {
        Self::new(EntityKind::MON, "")
    }
}
impl Encode for EntityName {
    fn encode(&self, e: &mut Encoder) {
        e.put(&u32::from(self.kind.0)).put(&self.id);
    }
}
impl Decode for EntityName {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let kind = u8::try_from(d.get::<u32>()?).map_err(|_| DecodeError::Invalid("entity type"))?;
        Ok(EntityName { kind: EntityKind(kind), id: d.get()? })
    }
}
impl fmt::Display for EntityName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.kind.name(), self.id)
    }
}
impl FromStr for EntityName {
    type Err = ();
    /// `kind.id`; the id may be empty (`mon.`) and may hold dots.
    fn from_str(s: &str) -> Result<Self, ()> {
        let (kind, id) = s.split_once('.').ok_or(())?;
        Ok(EntityName::new(EntityKind::from_name(kind).ok_or(())?, id))
    }
}

/// A running instance (`entity_name_t`): `client.4123` is global id 4123, `osd.2` the OSD's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EntityInst {
    pub kind: EntityKind,
    pub num: i64,
}
impl Encode for EntityInst {
    fn encode(&self, e: &mut Encoder) {
        e.put(&self.kind.0).put(&self.num);
    }
}
impl Decode for EntityInst {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(EntityInst { kind: EntityKind(d.get()?), num: d.get()? })
    }
}
impl fmt::Display for EntityInst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.kind.name(), self.num)
    }
}
