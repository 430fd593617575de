//! The client against a real cluster, stock or ours: `CLUSTER_DIR` names a directory with `ceph.conf` and `keyring`;
//! without it these tests pass over.
// These tests are a world of their own: sockets, a clock, threads.
#![allow(clippy::disallowed_methods)]

mod mon;
mod net;
mod rados;
