//! The admin socket's protocol: one request per connection, one reply.
//!
//! A request is JSON text up to a NUL or a line end; the reply is a big-endian u32 length and the bytes. Four raw bytes
//! are the requests of long ago: `0` asks the version, `1` the counters.
//! Upstream: src/common/admin_socket.cc, src/pybind/ceph_daemon.py.

use crate::command::{Command, CommandError, Reply};
use types::Errno;

/// The longest request that is read.
pub const REQUEST_MAX: usize = 1024;

/// A request, once it is complete.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// More bytes are needed.
    Incomplete,
    /// The version of this protocol is asked: reply `VERSION`.
    Version,
    /// A command, or why it is none.
    Command(Result<Command, CommandError>),
}

/// What `Request::Version` is answered with.
pub const VERSION: &str = "2";

/// Reads the bytes received so far.
pub fn request(bytes: &[u8]) -> Request {
    if let Some(old @ [0, 0, 0, code]) = bytes.get(..4) {
        let prefix = match code {
            0 => return Request::Version,
            1 => "perf dump",
            2 => "perf schema",
            _ => return Request::Command(Err(invalid(&format!("{old:?}")))),
        };
        return Request::Command(Command::parse(&[format!(r#"{{"prefix":"{prefix}"}}"#)]));
    }
    let end = bytes.iter().position(|b| *b == 0 || *b == b'\n');
    match end.and_then(|n| bytes.get(..n)) {
        Some(line) => Request::Command(command(line)),
        None if bytes.len() > REQUEST_MAX => Request::Command(Err(invalid("request too long"))),
        None => Request::Incomplete,
    }
}

fn command(line: &[u8]) -> Result<Command, CommandError> {
    let text = std::str::from_utf8(line).map_err(|_| invalid("invalid json"))?;
    match Command::parse(&[text.to_owned()]) {
        // Where a client of the network is told what it sent, this one is told less.
        Err(e) if e.status.contains("JSON") => Err(invalid("invalid json")),
        other => other,
    }
}

fn invalid(text: &str) -> CommandError {
    CommandError::new(Errno::EINVAL, text)
}

/// The bytes of a reply. An error is text in the place of the output.
pub fn reply(reply: &Reply) -> Vec<u8> {
    let error;
    let payload: &[u8] = if reply.result < 0 {
        error = format!("ERROR: {}\n{}\n", Errno(-reply.result), reply.status);
        error.as_bytes()
    } else if reply.output.is_empty() {
        reply.status.as_bytes()
    } else {
        &reply.output
    };
    let mut out = (payload.len() as u32).to_be_bytes().to_vec();
    out.extend_from_slice(payload);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_ends_with_a_nul_or_a_line() {
        assert_eq!(request(b"{\"prefix\":"), Request::Incomplete);
        for text in [&b"{\"prefix\":\"perf dump\"}\0"[..], b"{\"prefix\":\"perf dump\"}\nmore", &[0, 0, 0, 1]] {
            let Request::Command(Ok(command)) = request(text) else { panic!() };
            assert_eq!(command.prefix, "perf dump");
        }
        assert_eq!(request(&[0; 4]), Request::Version);
    }

    #[test]
    fn endless_requests_are_cut_off() {
        assert!(matches!(request(&[b'x'; 2000]), Request::Command(Err(_))));
    }

    #[test]
    fn replies_are_length_prefixed_and_errors_are_text() {
        assert_eq!(reply(&Reply::output("ab")), [0, 0, 0, 2, b'a', b'b']);
        let Request::Command(Err(e)) = request(b"garbage\0") else { panic!() };
        assert_eq!(&reply(&e.into())[4..], b"ERROR: (22) Invalid argument\ninvalid json\n");
    }
}
