//! Sentences about usage and traffic that `ceph -s`, `pg stat` and `osd pool stats` share.
//!
//! Upstream: src/mon/PGMap.cc (recovery_summary, client_io_rate_summary).

use crate::human::{bytes, si};
use serde_json::{Map, Value};
use types::pg::{IoRates, ObjectStatSum};

/// `2/6 objects degraded (33.333%)` and its like: degraded, misplaced, unfound; nothing when all is well.
pub fn recovery_lines(sum: &ObjectStatSum) -> Vec<String> {
    troubles(sum).map(|(n, of, what)| format!("{n}/{of} objects {what} ({:.3}%)", percent(n, of))).collect()
}

/// The same as members of an object: `degraded_objects`, `degraded_total`, `degraded_ratio`, ...
pub fn recovery_json(sum: &ObjectStatSum) -> Map<String, Value> {
    let mut out = Map::new();
    for (n, of, what) in troubles(sum) {
        out.insert(format!("{what}_objects"), n.into());
        out.insert(format!("{what}_total"), of.into());
        out.insert(format!("{what}_ratio"), (percent(n, of) / 100.0).into());
    }
    out
}

fn troubles(sum: &ObjectStatSum) -> impl Iterator<Item = (i64, i64, &'static str)> {
    let (copies, objects) = (sum.num_object_copies, sum.num_objects);
    [
        (sum.num_objects_degraded, copies, "degraded"),
        (sum.num_objects_misplaced, copies, "misplaced"),
        (sum.num_objects_unfound, objects, "unfound"),
    ]
    .into_iter()
    .filter(|(n, of, _)| *n > 0 && *of > 0)
}

fn percent(n: i64, of: i64) -> f64 {
    n as f64 / of as f64 * 100.0
}

/// `1.2 MiB/s rd, 14 KiB/s wr, 3 op/s rd, 4 op/s wr`; `None` when nothing is read or written.
pub fn client_io_line(io: &IoRates) -> Option<String> {
    let mut out = String::new();
    if io.read_ops + io.read_bytes > 0 {
        out += &format!("{}/s rd, ", bytes(io.read_bytes));
    }
    if io.write_ops + io.write_bytes > 0 {
        out += &format!("{}/s wr, ", bytes(io.write_bytes));
    }
    (!out.is_empty()).then(|| format!("{out}{} op/s rd, {} op/s wr", si(io.read_ops), si(io.write_ops)))
}

/// The same as members of an object.
pub fn client_io_json(io: &IoRates) -> Map<String, Value> {
    let mut out = Map::new();
    if io.read_ops + io.read_bytes > 0 {
        out.insert("read_bytes_sec".into(), io.read_bytes.into());
    }
    if io.write_ops + io.write_bytes > 0 {
        out.insert("write_bytes_sec".into(), io.write_bytes.into());
    }
    if !out.is_empty() {
        out.insert("read_op_per_sec".into(), io.read_ops.into());
        out.insert("write_op_per_sec".into(), io.write_ops.into());
    }
    out
}

/// `12 MiB/s, 3 keys/s, 4 objects/s`; `None` when nothing is recovered.
pub fn recovery_io_line(io: &IoRates) -> Option<String> {
    if io.recovering_objects + io.recovering_bytes + io.recovering_keys == 0 {
        return None;
    }
    let keys = if io.recovering_keys > 0 { format!(", {} keys/s", si(io.recovering_keys)) } else { String::new() };
    Some(format!("{}/s{keys}, {} objects/s", bytes(io.recovering_bytes), si(io.recovering_objects)))
}

/// The same as members of an object.
pub fn recovery_io_json(io: &IoRates) -> Map<String, Value> {
    let mut out = Map::new();
    if io.recovering_objects + io.recovering_bytes + io.recovering_keys > 0 {
        out.insert("recovering_objects_per_sec".into(), io.recovering_objects.into());
        out.insert("recovering_bytes_per_sec".into(), io.recovering_bytes.into());
        out.insert("recovering_keys_per_sec".into(), io.recovering_keys.into());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn troubles_are_counted_against_copies() {
        let sum = ObjectStatSum { num_objects: 2, num_object_copies: 6, num_objects_degraded: 2, ..Default::default() };
        assert_eq!(recovery_lines(&sum), ["2/6 objects degraded (33.333%)"]);
        assert_eq!(recovery_json(&sum)["degraded_total"], 6);
        assert!(recovery_lines(&ObjectStatSum::default()).is_empty());
    }

    #[test]
    fn traffic_names_only_what_flows() {
        let io = IoRates { write_bytes: 14_107, ..Default::default() };
        assert_eq!(client_io_line(&io).unwrap(), "14 KiB/s wr, 0 op/s rd, 0 op/s wr");
        assert_eq!((client_io_line(&IoRates::default()), recovery_io_line(&io)), (None, None));
    }
}
