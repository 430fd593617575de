//! Endpoints against each other, against strangers, and against stock Ceph.

mod net;
mod sessions;
mod stock;
mod strangers;
