//! Commands about PGs and the operations in them.

use crate::disk::Disk;
use crate::effects::{Cx, Effect};
use crate::osd::Osd;
use admin::command::Reply;
use admin::{Args, CommandError};
use serde_json::{Value, json};
use std::time::Duration;
use types::{Errno, HObject, Mono, Now, PgId};

impl Osd {
    pub(super) fn pg_command(&mut self, now: Now, disk: &mut dyn Disk, cmd: &str, args: &Args, fx: &mut Vec<Effect>) -> Result<Value, CommandError> {
        let id = args.pg("pgid").ok_or_else(|| CommandError::invalid("no pgid"))?;
        let pg = self.pgs.get_mut(&id).ok_or_else(|| no_such(id))?;
        let mut cx = Cx { now, disk, sh: &mut self.sh, fx };
        match cmd {
            "query" => Ok(pg.query(&cx.sh.map, cx.sh.whoami)),
            "list_unfound" => {
                let offset = args.str("offset").map(crate::pg::offset).transpose()?;
                Ok(pg.list_unfound(&mut cx, offset.unwrap_or_else(HObject::min)))
            }
            other => Err(CommandError::new(Errno::EOPNOTSUPP, format!("pg {other} is not served"))),
        }
    }

    pub(super) fn mark_unfound_lost(
        &mut self,
        now: Now,
        disk: &mut dyn Disk,
        command: u64,
        args: &Args,
        fx: &mut Vec<Effect>,
    ) -> Result<Option<Reply>, CommandError> {
        let id = args.pg("pgid").ok_or_else(|| CommandError::invalid("no pgid"))?;
        let revert = args.require("mulcmd")? == "revert";
        let pg = self.pgs.get_mut(&id).ok_or_else(|| no_such(id))?;
        let mut cx = Cx { now, disk: &mut *disk, sh: &mut self.sh, fx: &mut *fx };
        let reply = pg.mark_unfound_lost(&mut cx, command, revert);
        self.loop_back(now, disk, fx);
        reply
    }

    pub(super) fn watchers(&self) -> Value {
        let one = |(id, pg): (&PgId, &crate::pg::Pg)| -> Vec<Value> {
            pg.watchers()
                .map(|(obj, key, addr, timeout)| {
                    json!({
                        "namespace": obj.nspace.to_string(), "object": obj.name.to_string(), "pg": id.to_string(),
                        "watcher": {"watcher": key.who.to_string(), "cookie": key.cookie, "timeout": timeout.as_secs(),
                            "addr": addr.to_string()},
                    })
                })
                .collect()
        };
        let all: Vec<Value> = self.pgs.iter().flat_map(one).collect();
        json!({"watchers": all})
    }
}

fn no_such(id: PgId) -> CommandError {
    CommandError::new(Errno::ENOENT, format!("i don't have pgid {id}"))
}

/// The slowest operations of the last while.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// Slowest first.
    slowest: Vec<Past>,
}

#[derive(Debug)]
struct Past {
    description: String,
    ended: Mono,
    took: Duration,
}

impl History {
    /// `osd_op_history_size`.
    const SIZE: usize = 20;
    /// `osd_op_history_duration`.
    const KEPT: Duration = Duration::from_secs(600);

    /// An operation has ended. It is only described if it is among the slowest.
    pub fn note(&mut self, now: Mono, took: Duration, describe: impl FnOnce() -> String) {
        if self.slowest.len() >= Self::SIZE && self.slowest.last().is_some_and(|p| p.took >= took) {
            return;
        }
        self.slowest.retain(|p| now - p.ended < Self::KEPT);
        let at = self.slowest.partition_point(|p| p.took >= took);
        self.slowest.insert(at, Past { description: describe(), ended: now, took });
        self.slowest.truncate(Self::SIZE);
    }

    /// As `dump_historic_ops` prints them: by end, or the slowest first.
    pub fn dump(&self, now: Now, by_duration: bool) -> Value {
        let mut list: Vec<&Past> = self.slowest.iter().filter(|p| now.mono - p.ended < Self::KEPT).collect();
        if !by_duration {
            list.sort_by_key(|p| p.ended);
        }
        let ops: Vec<Value> = list
            .iter()
            .map(|p| {
                json!({"description": p.description, "age": (now.mono - p.ended).as_secs_f64() + p.took.as_secs_f64(),
                    "duration": p.took.as_secs_f64()})
            })
            .collect();
        json!({"size": Self::SIZE, "duration": Self::KEPT.as_secs(), "ops": ops})
    }
}
