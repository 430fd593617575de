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
        let of = |pg: &crate::pg::Pg| -> Vec<Value> {
            pg.watchers()
                .map(|(obj, key, addr, timeout)| {
                    json!({
                        "namespace": obj.nspace.to_string(), "object": obj.name.to_string(),
                        "entity_name": {"type": key.who.kind.name(), "num": key.who.num},
                        "cookie": key.cookie, "timeout": timeout.as_secs(), "entity_addr_t": addr.dump_json(),
                    })
                })
                .collect()
        };
        self.pgs.values().flat_map(of).collect()
    }

    /// How many scrubs it takes part in, its own and others'.
    pub(super) fn scrub_reservations(&self) -> Value {
        let own = self.pgs.values().filter(|pg| pg.is_scrubbing()).count();
        json!({"scrubs_local": own, "scrubs_remote": self.sh.scrubs_active.saturating_sub(own), "osd_max_scrubs": self.sh.scrub.max})
    }

    /// When its PGs are to be scrubbed, the first ones first.
    pub(super) fn scheduled_scrubs(&self, now: Now) -> Value {
        let ours = self.pgs.iter().filter(|(_, pg)| pg.is_primary(self.sh.whoami));
        let mut all: Vec<_> = ours.filter_map(|(id, pg)| Some((pg.next_scrub(now, &self.sh)?, id))).collect();
        all.sort_by_key(|(next, id)| (next.at, **id));
        let show = |(next, id): (crate::pg::NextScrub, &PgId)| {
            json!({"pgid": id.to_string(), "sched_time": next.at.to_string(), "deadline": next.deadline.to_string(), "forced": next.forced})
        };
        all.into_iter().map(show).collect()
    }
}

fn no_such(id: PgId) -> CommandError {
    CommandError::new(Errno::ENOENT, format!("i don't have pgid {id}"))
}
