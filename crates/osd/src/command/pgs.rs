//! Commands about PGs and the operations in them.

use crate::disk::Disk;
use crate::effects::{Cx, Effect};
use crate::osd::Osd;
use admin::command::Reply;
use admin::{Args, CommandError};
use serde_json::{Value, json};
use types::{Errno, HObject, Now, PgId};

impl Osd {
    pub(super) fn pg_command(&mut self, now: Now, disk: &mut dyn Disk, cmd: &str, args: &Args, fx: &mut Vec<Effect>) -> Result<Value, CommandError> {
        let id = args.pg("pgid").ok_or_else(|| CommandError::invalid("no pgid"))?;
        let pg = self.pgs.get_mut(&id).ok_or_else(|| no_such(id))?;
        let mut cx = Cx { now, disk, sh: &mut self.sh, fx };
        match cmd {
            "query" => Ok(pg.query(&cx)),
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
