//! One target per decoder a stranger can reach, each a function from bytes to nothing that must not panic, hang, or
//! take memory out of proportion.
//!
//! `scripts/fuzz-short` runs each for a few seconds under libFuzzer; `cargo test` here runs each on seeds of its own
//! and on seeded changes of them, the same ones every time, and on every input that once failed (`regressions/`).
#![forbid(unsafe_code)]

mod auths;
mod connections;
mod decoders;
mod objects;
mod texts;

/// A function to fuzz.
pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]),
    /// Well-formed inputs to start from.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

pub const TARGETS: &[Target] = &[
    Target { name: "msgr_acceptor", run: connections::acceptor, seeds: connections::acceptor_seeds },
    Target { name: "msgr_dialler", run: connections::dialler, seeds: connections::dialler_seeds },
    Target { name: "osdmap", run: decoders::osdmap, seeds: decoders::osdmap_seeds },
    Target { name: "osdmap_incremental", run: decoders::osdmap_incremental, seeds: decoders::incremental_seeds },
    Target { name: "monmap", run: decoders::monmap, seeds: decoders::monmap_seeds },
    Target { name: "mgrmap", run: decoders::mgrmap, seeds: decoders::mgrmap_seeds },
    Target { name: "fsmap", run: decoders::fsmap, seeds: decoders::fsmap_seeds },
    Target { name: "crush", run: decoders::crush, seeds: decoders::crush_seeds },
    Target { name: "crush_text", run: texts::crush_text, seeds: texts::crush_text_seeds },
    Target { name: "message", run: decoders::message, seeds: decoders::message_seeds },
    Target { name: "osd_op", run: decoders::osd_op, seeds: decoders::osd_op_seeds },
    Target { name: "auth_server", run: auths::mon_server, seeds: auths::server_seeds },
    Target { name: "auth_service", run: auths::service, seeds: auths::service_seeds },
    Target { name: "auth_client", run: auths::client, seeds: auths::client_seeds },
    Target { name: "caps", run: texts::caps, seeds: texts::caps_seeds },
    Target { name: "keyring", run: texts::keyring, seeds: texts::keyring_seeds },
    Target { name: "admin_socket", run: texts::admin_socket, seeds: texts::admin_socket_seeds },
    Target { name: "conf", run: texts::conf, seeds: texts::conf_seeds },
    Target { name: "object_ops", run: objects::operations, seeds: objects::operation_seeds },
    Target { name: "object_listing", run: objects::listing, seeds: objects::listing_seeds },
    Target { name: "store_records", run: objects::records, seeds: objects::record_seeds },
    Target { name: "store_packed_records", run: objects::packed_records, seeds: objects::packed_record_seeds },
    Target { name: "transaction", run: objects::transaction, seeds: objects::transaction_seeds },
    Target { name: "command", run: texts::command, seeds: texts::command_seeds },
];
