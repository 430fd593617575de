//! What we say we are. Tools read the number behind `ceph version` to decide what a cluster can do: it is the release
//! whose formats and commands we speak.

/// The release we answer like.
pub const RELEASE: &str = "pacific";
/// Where the program comes from.
pub const COMMIT: &str = concat!("cuttlebone ", env!("CARGO_PKG_VERSION"));

/// `16.2.15`
pub fn short() -> &'static str {
    "16.2.15"
}

/// `ceph version 16.2.15 (cuttlebone 0.1.0) pacific (stable)`
pub fn full() -> String {
    format!("ceph version {} ({COMMIT}) {RELEASE} (stable)", short())
}
