//! Commands to the monitors, one at a time: what `up` and `status` need.

use crate::config::DaemonConfig;
use crate::session::Session;
use anyhow::{Context, Result};
use bytes::Bytes;
use client::CommandReply;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;
use types::{EntityKind, Errno};

/// Who was asked will not do it: the errno's name and its words.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refused(String);

/// A session as client.admin.
pub struct AdminClient {
    session: Session,
    patience: Duration,
}

impl AdminClient {
    /// Connects to the cluster of `conf`. Errors: no file, no monitor address, no key, nobody answers.
    pub fn connect(conf: &Path, patience: Duration) -> Result<Self> {
        let config = DaemonConfig::load(EntityKind::CLIENT, "admin", Some(conf), &[])?;
        Self::connect_with(&config, patience)
    }

    /// Connects as whoever the configuration is of.
    pub fn connect_with(config: &DaemonConfig, patience: Duration) -> Result<Self> {
        Ok(AdminClient { session: Session::open(config, patience)?, patience })
    }

    /// Runs one command and returns its output. Errors: [`Refused`], or nobody answered in time, and whether it was done is not known.
    pub fn command(&self, json: Value, input: &[u8]) -> Result<Bytes> {
        let what = json["prefix"].as_str().unwrap_or_default().to_owned();
        self.ask(what, self.session.handle.mon_command(json.to_string(), Bytes::copy_from_slice(input)))
    }

    /// The same of the active manager; waits for one.
    pub fn mgr_command(&self, json: Value) -> Result<Bytes> {
        let what = json["prefix"].as_str().unwrap_or_default().to_owned();
        self.ask(what, self.session.handle.mgr_command(json.to_string(), Bytes::new(), false))
    }

    fn ask(&self, what: String, asked: impl Future<Output = Result<CommandReply, Errno>>) -> Result<Bytes> {
        let answered = self.session.block_on_for(asked, self.patience);
        let reply = answered.with_context(|| format!("{what}: no answer within {} s", self.patience.as_secs()))?;
        let reply = reply.with_context(|| what.clone())?;
        if reply.result < 0 {
            return Err(Refused(format!("{what}: {}: {}", Errno(-reply.result).name(), reply.status)).into());
        }
        Ok(reply.output)
    }
}
