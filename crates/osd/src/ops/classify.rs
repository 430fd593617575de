//! What a message's operations do together, before any of them runs: it decides how the message is queued.

use crate::cls;
use types::Errno;
use types::msg::osd_op::{Op, OsdOp, Watch};

/// How a message touches its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Access {
    pub reads: bool,
    pub writes: bool,
    /// Its operations are about the PG and not about an object.
    pub pg: bool,
    /// Calls of classes in it, for capabilities (`allow x`).
    pub class_reads: bool,
    pub class_writes: bool,
}

/// Looks at every operation. EOPNOTSUPP for classes and methods nobody registered, EINVAL for nonsense.
pub fn classify(ops: &[OsdOp]) -> Result<Access, Errno> {
    let mut access = Access::default();
    for op in ops {
        match op.op {
            Op::Call(args) => {
                let (class, method, _) = op.call_parts(&args).map_err(|_| Errno::EINVAL)?;
                let method = cls::find(&class, &method)?;
                access.class_reads |= method.flags & cls::RD != 0;
                access.class_writes |= method.flags & cls::WR != 0;
                // A method that neither reads nor writes still has to be answered in its turn.
                access.reads |= method.flags & cls::WR == 0 || method.flags & cls::RD != 0;
                access.writes |= method.flags & cls::WR != 0;
            }
            // A ping changes nothing; the others depend on which watches there are.
            Op::Watch(Watch { op, .. }) => {
                access.reads = true;
                access.writes |= op != Watch::PING;
            }
            op => {
                access.reads |= op.reads();
                access.writes |= op.writes();
                access.pg |= op.is_pg();
            }
        }
    }
    match access.pg && !ops.iter().all(|op| op.op.is_pg()) {
        true => Err(Errno::EINVAL),
        false => Ok(access),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::msg::osd_op::Pgls;

    #[test]
    fn a_class_method_counts_as_it_is_registered() {
        let read = classify(&[OsdOp::call("lock", "get_info", b"")]).unwrap();
        assert!(read.reads && !read.writes && read.class_reads && !read.class_writes);
        let both = classify(&[OsdOp::call("lock", "lock", b"")]).unwrap();
        assert!(both.reads && both.writes);
        let blind = classify(&[OsdOp::call("hello", "record_hello", b"")]).unwrap();
        assert!(!blind.reads && blind.writes);
    }

    #[test]
    fn what_is_not_registered_is_not_supported() {
        assert_eq!(classify(&[OsdOp::call("lock", "nosuch", b"")]), Err(Errno::EOPNOTSUPP));
        assert_eq!(classify(&[OsdOp::call("rbd", "create", b"")]), Err(Errno::EOPNOTSUPP));
        assert_eq!(classify(&[OsdOp::call("nosuch", "create", b"")]), Err(Errno::EPERM));
    }

    #[test]
    fn a_watch_ping_is_no_write() {
        let watch = |op| OsdOp::from(Op::Watch(Watch { op, ..Watch::default() }));
        assert!(!classify(&[watch(Watch::PING)]).unwrap().writes);
        assert!(classify(&[watch(Watch::WATCH)]).unwrap().writes);
    }

    #[test]
    fn pg_and_object_operations_do_not_mix() {
        assert_eq!(classify(&[Op::Pgnls(Pgls::default()).into(), OsdOp::read(0, 1)]), Err(Errno::EINVAL));
    }
}
