//! `cuttlebone osd replace`: a new device for an OSD, under its number.
//!
//! Holds: the old OSD is not destroyed before the new places were looked at, and before the cluster says that its data is elsewhere, or the operator said that
//! the other copies have to do and they serve.

use super::create::{self, CreateArgs};
use super::list::{self, Found};
use super::place::{DB, DB_DEVICE, DB_SIZE, WAL};
use super::{devices, zap};
use crate::admin_client::AdminClient;
use crate::out::say;
use crate::process::{read_pid, spawn_daemon, stop_pid};
use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
/// A daemon has so long to end in order.
const ENDING: Duration = Duration::from_secs(60);
/// Nothing has moved for so long: there is nowhere to.
const STUCK: Duration = Duration::from_secs(30);

/// Give an OSD of this machine a new device: its data goes to the others first (--drain) or comes from them afterwards (--now), its number, place and class stay. Database and journal
/// stay where they are, made anew, unless they are given other places
#[derive(Parser, Debug)]
#[command(name = "cuttlebone osd replace", max_term_width = 100)]
struct ReplaceArgs {
    /// The OSD's number
    id: i32,
    /// Mark it out and wait until its data is on the others
    #[arg(long, conflicts_with = "now")]
    drain: bool,
    /// Do it though data is on it: there is a copy less until the new device has its own. Refused where anything would become unavailable
    #[arg(long)]
    now: bool,
    /// Do not start it
    #[arg(long)]
    no_start: bool,
    #[command(flatten)]
    new: CreateArgs,
}

/// Runs `cuttlebone osd replace`.
pub fn main(words: &[String]) -> Result<ExitCode> {
    let mut args = ReplaceArgs::parse_from([&["cuttlebone osd replace".to_owned()], words].concat());
    ensure!(args.new.osd_id.is_none(), "--osd-id: the number is osd.{}'s", args.id);
    args.new.osd_id = Some(args.id);
    let conf = args.new.conf.clone().unwrap_or_else(|| PathBuf::from(crate::config::DEFAULT_CONF));
    let old = list::one(Some(&conf), args.id).ok();
    if let Some(old) = &old {
        keep_places(&mut args.new, old);
    }
    let kept: Vec<PathBuf> = old.iter().flat_map(Found::parts).map(|part| part.path).collect();
    let data = std::path::absolute(devices::named(&args.new.data))?;
    ensure!(!old.as_ref().is_some_and(|old| data.starts_with(&old.home.dir)), "{} is in the directory of the OSD that is to go", data.display());
    create::look(&args.new, &kept)?;

    let cluster = Cluster { admin: AdminClient::connect(&conf, PATIENCE)?, id: args.id };
    let state = cluster.state()?;
    ensure!(old.is_some() || !state.is_up, "osd.{} is up, and not on this machine", args.id);
    if !state.is_destroyed {
        cluster.clear_way(&args)?;
        if let Some(old) = &old {
            stop(old)?;
        }
        cluster.destroy()?;
    }
    if let Some(old) = &old {
        for trouble in zap::clear(old)? {
            say!("left as it is: {trouble:#}");
        }
    }
    create::create(&args.new)?;
    cluster.weigh(&state, &data)?;
    let words = ["osd".to_owned(), "-i".into(), args.id.to_string(), "-c".into(), std::path::absolute(&conf)?.display().to_string()];
    if args.no_start {
        say!("osd.{} is made; start it: cuttlebone {}", args.id, words.join(" "));
        return Ok(ExitCode::SUCCESS);
    }
    spawn_daemon("cuttlebone", &words).with_context(|| format!("osd.{} is made, and does not start", args.id))?;
    cluster.await_up()?;
    say!("osd.{} is up on {}; `ceph -s` tells when its data is back", args.id, args.new.data);
    Ok(ExitCode::SUCCESS)
}

/// Database and journal go where they were, if nobody said otherwise.
fn keep_places(new: &mut CreateArgs, old: &Found) {
    let text = |path: &Path| path.display().to_string();
    if new.db.is_none() {
        let under = || old.home.link(DB).and_then(|db| old.home.dir.join(db).parent().map(text));
        new.db = old.home.link(DB_DEVICE).map(|d| text(&d)).or_else(under);
        new.db_size = new.db_size.or_else(|| old.home.read(DB_SIZE).ok()?.parse().ok());
    }
    if new.wal.is_none() {
        new.wal = old.home.link(WAL).map(|wal| text(&wal));
    }
}

/// Ends the OSD if it runs.
fn stop(old: &Found) -> Result<()> {
    let id = old.home.id;
    let pid = old.config.path("pid_file")?.and_then(|file| read_pid(&file));
    if let Some(pid) = pid {
        say!("stopping osd.{id}, process {pid}");
        ensure!(stop_pid(pid, ENDING), "osd.{id} (process {pid}) does not end");
    }
    ensure!(!old.is_running(), "osd.{id} runs, and pid_file does not say as which process: stop it first");
    Ok(())
}

/// The cluster, as far as it is about the OSD.
struct Cluster {
    admin: AdminClient,
    id: i32,
}

/// What the maps say of it.
struct State {
    is_up: bool,
    is_destroyed: bool,
    /// Its weight in CRUSH, TiB if nobody said otherwise, and the bytes of its device.
    weight: Option<f64>,
    bytes: Option<u64>,
}

impl Cluster {
    fn mon(&self, mut command: Value) -> Result<Value> {
        command["format"] = "json".into();
        let out = self.admin.command(command, b"")?;
        Ok(serde_json::from_slice(&out).unwrap_or(Value::Null))
    }

    fn entry(&self) -> Result<Value> {
        let dump = self.mon(json!({"prefix": "osd dump"}))?;
        let found = dump["osds"].as_array().into_iter().flatten().find(|osd| osd["osd"] == self.id).cloned();
        found.with_context(|| format!("there is no osd.{}: `cuttlebone osd create` makes one", self.id))
    }

    fn state(&self) -> Result<State> {
        let entry = self.entry()?;
        let is_destroyed = entry["state"].as_array().into_iter().flatten().any(|word| word == "destroyed");
        let tree = self.mon(json!({"prefix": "osd tree"}))?;
        let node = tree["nodes"].as_array().into_iter().flatten().find(|node| node["id"] == self.id);
        let metadata = self.mon(json!({"prefix": "osd metadata", "id": self.id.to_string()})).unwrap_or(Value::Null);
        Ok(State {
            is_up: entry["up"] == 1,
            is_destroyed,
            weight: node.and_then(|node| node["crush_weight"].as_f64()),
            bytes: metadata["bluestore_bdev_size"].as_str().and_then(|text| text.parse().ok()),
        })
    }

    /// Errors: data is on it, what that means, and what can be done.
    fn is_safe(&self) -> Result<()> {
        self.admin.mgr_command(json!({"prefix": "osd safe-to-destroy", "ids": [self.id.to_string()]})).map(|_| ())
    }

    /// Comes back when the OSD may be destroyed.
    fn clear_way(&self, args: &ReplaceArgs) -> Result<()> {
        let Err(why) = self.is_safe() else { return Ok(()) };
        if args.drain {
            return self.drain();
        }
        if !args.now {
            bail!("{why:#}\n--drain moves its data to the others first; --now replaces it at once, with a copy less until the new device has its own");
        }
        self.admin.mgr_command(json!({"prefix": "osd ok-to-stop", "ids": [self.id.to_string()]}))?;
        let pgmap = self.mon(json!({"prefix": "status"}))?["pgmap"].clone();
        let lost = |ratio: &str| pgmap[ratio].as_f64().unwrap_or(0.0) > 0.0;
        ensure!(!lost("inactive_pgs_ratio") && !lost("unknown_pgs_ratio"), "placement groups are not active: what osd.{} has may be needed", self.id);
        ensure!(pgmap["unfound_objects"].as_u64().unwrap_or(0) == 0, "objects are unfound: osd.{} may have them", self.id);
        Ok(())
    }

    fn drain(&self) -> Result<()> {
        let was_in = self.entry()?["in"] == 1;
        if was_in {
            self.mon(json!({"prefix": "osd out", "ids": [self.id.to_string()]}))?;
        }
        say!("osd.{} is out; its data moves to the others", self.id);
        let (mut moved_at, mut told_at) = (Instant::now(), Instant::now());
        while let Err(why) = self.is_safe() {
            let pgmap = self.mon(json!({"prefix": "status"}))?["pgmap"].clone();
            if is_moving(&pgmap) {
                moved_at = Instant::now();
            }
            if moved_at.elapsed() > STUCK {
                if was_in {
                    self.mon(json!({"prefix": "osd in", "ids": [self.id.to_string()]}))?;
                }
                bail!("{why:#}\nNothing moves: there is no other place for its data. --now replaces it with a copy less meanwhile");
            }
            if told_at.elapsed() > PATIENCE {
                told_at = Instant::now();
                say!("{why:#}");
            }
            std::thread::sleep(Duration::from_secs(1));
        }
        Ok(())
    }

    fn destroy(&self) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while self.entry()?["up"] == 1 {
            // It does not run any more, or it is another machine's that does not.
            self.mon(json!({"prefix": "osd down", "ids": [self.id.to_string()]}))?;
            ensure!(Instant::now() < end, "osd.{} stays up in the map", self.id);
            std::thread::sleep(Duration::from_millis(200));
        }
        self.mon(json!({"prefix": "osd destroy", "id": self.id, "yes_i_really_mean_it": true})).map(|_| ())
    }

    /// The new device's weight, unless somebody gave the old one another than its size.
    fn weigh(&self, was: &State, data: &Path) -> Result<()> {
        let bytes = File::open(data).and_then(|mut file| file.seek(SeekFrom::End(0))).with_context(|| data.display().to_string())?;
        let (Some(weight), Some(old)) = (was.weight, was.bytes) else { return Ok(()) };
        let (by_size, new) = (mon::weight_of_size(old), mon::weight_of_size(bytes));
        if (weight - by_size).abs() > by_size * 0.02 {
            say!("osd.{} keeps its CRUSH weight of {weight:.5}, which is not its old size", self.id);
            return Ok(());
        }
        if new != by_size {
            self.mon(json!({"prefix": "osd crush reweight", "name": format!("osd.{}", self.id), "weight": new}))?;
            say!("osd.{} has a CRUSH weight of {new:.5} now, for its new size", self.id);
        }
        Ok(())
    }

    fn await_up(&self) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while self.entry()?["up"] != 1 {
            ensure!(Instant::now() < end, "osd.{} runs, and the monitors do not say that it is up; see its log", self.id);
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }
}

/// Does anything on its way to another place get there?
fn is_moving(pgmap: &Value) -> bool {
    let states = pgmap["pgs_by_state"].as_array().into_iter().flatten().filter_map(|s| s["state_name"].as_str());
    let on_the_way = ["backfilling", "backfill_wait", "recovering", "recovery_wait", "peering", "activating", "unknown"];
    states.flat_map(|name| name.split('+')).any(|word| on_the_way.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn something_moves_while_any_group_is_on_its_way() {
        let pgmap = |names: &[&str]| json!({"pgs_by_state": names.iter().map(|n| json!({"state_name": n, "count": 1})).collect::<Vec<_>>()});
        assert!(is_moving(&pgmap(&["active+clean", "active+remapped+backfill_wait"])));
        assert!(!is_moving(&pgmap(&["active+clean", "active+undersized+degraded", "active+remapped+backfill_toofull"])));
    }
}
