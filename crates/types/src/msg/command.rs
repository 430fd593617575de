//! Commands: one JSON text in, a status line and output bytes out.
//!
//! Upstream: src/messages/MMonCommand.h, MMonCommandAck.h, MCommand.h, MCommandReply.h, MMgrCommand.h, MMgrCommandReply.h.

use super::mon::PaxosHeader;
use super::message;
use denc::BString;
use uuid::Uuid;

message! {
    /// A command for the monitors.
    MMonCommand = 50, v 1, c 1, p 127 {
        paxos: PaxosHeader,
        fsid: Uuid,
        /// The JSON text, whole in the first element; further ones continue it.
        cmd: Vec<String>,
    } + /** What the command was given on standard input. */ data
}
message! {
    MMonCommandAck = 51, v 1, c 1, p 196 {
        paxos: PaxosHeader,
        /// 0 or a negative errno.
        result: i32,
        /// For standard error.
        status: BString,
        /// The command, repeated.
        cmd: Vec<String>,
    } + /** For standard output. */ data
}
message! {
    /// A command for one daemon (`ceph tell`).
    MCommand = 97, v 1, c 1, p 127 { fsid: Uuid, cmd: Vec<String>, } + data
}
message! {
    MCommandReply = 98, v 1, c 1, p 127 { result: i32, status: BString, } + data
}
message! {
    /// A command for the active manager.
    MMgrCommand = 1801, v 1, c 1, p 127 { fsid: Uuid, cmd: Vec<String>, } + data
}
message! {
    MMgrCommandReply = 1802, v 1, c 1, p 127 { result: i32, status: BString, } + data
}

#[cfg(test)]
mod tests {
    use super::super::tests::round_trip;
    use super::*;
    use bytes::Bytes;

    #[test]
    fn output_travels_in_the_data_segment() {
        let raw = round_trip(&MMonCommandAck {
            paxos: PaxosHeader::default(),
            result: -22,
            status: "no".into(),
            cmd: vec!["{}".into()],
            data: Bytes::from_static(b"out").into(),
        });
        assert_eq!(raw.data.contiguous(), "out");
        assert_eq!(raw.front.len(), 18 + 4 + 6 + 4 + 6);
    }
}
