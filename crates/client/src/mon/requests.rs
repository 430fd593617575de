//! Commands and version questions: sent again over every new session until they are answered.

use bytes::Bytes;
use std::collections::BTreeMap;
use types::msg::{MMonCommand, MMonGetVersion, RawMessage, WireMessage};
use types::{features, msg::mon::PaxosHeader};
use uuid::Uuid;

/// What waits for a monitor.
#[derive(Debug, Default)]
pub struct Requests {
    last: u64,
    commands: BTreeMap<u64, MMonCommand>,
    versions: BTreeMap<u64, RawMessage>,
    /// For the next session; not tracked once sent.
    queued: Vec<RawMessage>,
}

impl Requests {
    /// Keeps a command; with a `fsid`, the message to send now. A monitor answers EPERM to another cluster's fsid, so
    /// commands wait for the first MonMap.
    pub fn command(&mut self, fsid: Option<Uuid>, json: String, input: Bytes) -> (u64, Option<RawMessage>) {
        let cmd = MMonCommand { paxos: PaxosHeader::default(), fsid: Uuid::nil(), cmd: vec![json], data: input.into() };
        let tid = self.next();
        let msg = fsid.map(|fsid| command_message(tid, &cmd, fsid));
        self.commands.insert(tid, cmd);
        (tid, msg)
    }

    pub fn get_version(&mut self, what: &str) -> (u64, RawMessage) {
        let handle = self.next();
        let msg = MMonGetVersion { handle, what: what.to_owned() }.to_raw(features::SUPPORTED);
        self.versions.insert(handle, msg.clone());
        (handle, msg)
    }

    pub fn queue(&mut self, msg: RawMessage) {
        self.queued.push(msg);
    }

    /// True if the command waited.
    pub fn command_answered(&mut self, tid: u64) -> bool {
        self.commands.remove(&tid).is_some()
    }

    pub fn cancel_command(&mut self, tid: u64) {
        self.commands.remove(&tid);
    }

    /// True if the question waited.
    pub fn version_answered(&mut self, handle: u64) -> bool {
        self.versions.remove(&handle).is_some()
    }

    /// What a new session is to be sent besides commands.
    pub fn for_new_session(&mut self) -> Vec<RawMessage> {
        let mut out: Vec<RawMessage> = self.versions.values().cloned().collect();
        out.append(&mut self.queued);
        out
    }

    /// The commands a new session is to be sent, oldest first.
    pub fn all_commands(&self, fsid: Uuid) -> Vec<RawMessage> {
        self.commands.iter().map(|(tid, cmd)| command_message(*tid, cmd, fsid)).collect()
    }

    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

fn command_message(tid: u64, cmd: &MMonCommand, fsid: Uuid) -> RawMessage {
    let cmd = MMonCommand { fsid, ..cmd.clone() };
    RawMessage { tid, ..cmd.to_raw(features::SUPPORTED) }
}
