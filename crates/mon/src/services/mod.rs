//! The replicated state: one service per map or database.
//!
//! Holds: what a service has in memory is its part of the kv plus every change handed to `Txn` since; nothing in it
//! depends on anything else, so that it can be read again from the kv at any time.

pub mod auth;
pub mod config;
pub mod config_key;
pub mod fences;
pub mod fsmap;
pub mod health;
pub mod log;
pub mod mgr;
pub mod monmap;
pub mod osdmap;
mod prime;
mod upmaps;

use crate::txn::StateError;
use store::Kv;

/// All services.
pub struct State {
    pub monmap: monmap::MonMapService,
    pub osdmap: osdmap::OsdMapService,
    pub mgr: mgr::MgrService,
    pub fsmap: fsmap::FsMapService,
    pub auth: auth::AuthService,
    pub config: config::ConfigService,
    pub config_key: config_key::ConfigKeyService,
    pub log: log::LogService,
    pub health: health::HealthService,
}

impl State {
    /// Reads everything; `None` if the cluster has not been started yet.
    pub fn load(kv: &impl Kv) -> Result<Option<Self>, StateError> {
        let Some(monmap) = monmap::MonMapService::load(kv)? else { return Ok(None) };
        Ok(Some(State {
            monmap,
            osdmap: osdmap::OsdMapService::load(kv)?,
            mgr: mgr::MgrService::load(kv)?,
            fsmap: fsmap::FsMapService::load(kv)?,
            auth: auth::AuthService::load(kv)?,
            config: config::ConfigService::load(kv)?,
            config_key: config_key::ConfigKeyService::load(kv)?,
            log: log::LogService::load(kv)?,
            health: health::HealthService::load(kv)?,
        }))
    }
}
