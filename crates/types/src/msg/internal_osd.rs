//! Messages between OSDs. Ours, not Ceph's: kinds from 0x7100.
//!
//! List each of them in `any.rs`.
