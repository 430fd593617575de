//! Xattrs, omaps and locks.

use crate::out::say;
use super::said;
use anyhow::{Result, bail};
use bytes::Bytes;
use clap::Subcommand;
use client::IoCtx;
use client::lock::{LockKind, LockRequest, LockerId};
use std::io::Write;
use std::time::Duration;
use types::{EntityInst, EntityName, Errno};

#[derive(Subcommand)]
pub enum LockCommand {
    /// Take a lock
    Get {
        object: String,
        name: String,
        #[arg(long, default_value = "")]
        lock_cookie: String,
        #[arg(long, default_value = "")]
        lock_tag: String,
        #[arg(long, default_value = "")]
        lock_description: String,
        /// Seconds; 0: until it is given back
        #[arg(long, default_value_t = 0)]
        lock_duration: u64,
        /// `exclusive` or `shared`
        #[arg(long, default_value = "exclusive")]
        lock_type: String,
    },
    /// Take a lock from its holder (`client.4123`)
    Break {
        object: String,
        name: String,
        locker: String,
        #[arg(long, default_value = "")]
        lock_cookie: String,
    },
    /// Who holds a lock
    Info { object: String, name: String },
    /// Names of an object's locks
    List { object: String },
}

fn print(value: &[u8]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(value)?;
    Ok(writeln!(out)?)
}

/// A value as the stock command shows it: its length and a hex dump.
fn print_value(value: &[u8]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "value ({} bytes) :", value.len())?;
    for (i, line) in value.chunks(16).enumerate() {
        let hex = |half: &[u8]| half.iter().map(|b| format!("{b:02x} ")).collect::<String>();
        let (left, right) = line.split_at(line.len().min(8));
        let text: String = line.iter().map(|b| if (32..127).contains(b) { *b as char } else { '.' }).collect();
        writeln!(out, "{:08x}  {:<24} {:<24} |{text}|", i * 16, hex(left), hex(right))?;
    }
    writeln!(out, "{:08x}", value.len())?;
    Ok(writeln!(out)?)
}

pub async fn getxattr(io: &IoCtx, object: &str, name: &str) -> Result<()> {
    print(&said(io.getxattr(object.as_bytes(), name.as_bytes()).await, "getting xattr of", object)?)
}

pub async fn listxattr(io: &IoCtx, object: &str) -> Result<()> {
    for name in said(io.getxattrs(object.as_bytes()).await, "getting xattrs of", object)?.keys() {
        print(name)?;
    }
    Ok(())
}

pub async fn setomapval(io: &IoCtx, object: &str, key: &str, value: &str) -> Result<()> {
    let values = [(key.into(), Bytes::copy_from_slice(value.as_bytes()))].into();
    said(io.omap_set(object.as_bytes(), &values).await, "setting omap of", object)
}

pub async fn getomapval(io: &IoCtx, object: &str, key: &str) -> Result<()> {
    let found = said(io.omap_by_keys(object.as_bytes(), &[key.into()].into()).await, "getting omap of", object)?;
    match found.into_values().next() {
        Some(value) => print_value(&value),
        None => bail!("No such key: {object}/{key}"),
    }
}

pub async fn listomapkeys(io: &IoCtx, object: &str) -> Result<()> {
    let mut after = denc::BString::default();
    loop {
        let page = io.omap_keys_page(object.as_bytes(), &after, 512).await;
        let (keys, more) = said(page, "getting omap keys of", object)?;
        for key in &keys {
            print(key)?;
        }
        match keys.into_iter().next_back() {
            Some(last) if more => after = last,
            _ => return Ok(()),
        }
    }
}

pub async fn listomapvals(io: &IoCtx, object: &str) -> Result<()> {
    for (key, value) in said(io.omap_all(object.as_bytes()).await, "getting omap of", object)? {
        print(&key)?;
        print_value(&value)?;
    }
    Ok(())
}

pub async fn rmomapkey(io: &IoCtx, object: &str, key: &str) -> Result<()> {
    said(io.omap_rm_keys(object.as_bytes(), &[key.into()].into()).await, "removing omap key of", object)
}

pub async fn getomapheader(io: &IoCtx, object: &str) -> Result<()> {
    let header = said(io.omap_header(object.as_bytes()).await, "getting omap header of", object)?;
    say!("header ({} bytes) :", header.len());
    print(&header)
}

pub async fn lock(io: &IoCtx, command: &LockCommand) -> Result<()> {
    match command {
        LockCommand::Get { object, name, lock_cookie, lock_tag, lock_description, lock_duration, lock_type } => {
            let kind = match lock_type.as_str() {
                "exclusive" => LockKind::EXCLUSIVE,
                "shared" => LockKind::SHARED,
                other => bail!("unknown lock type {other:?}: exclusive or shared"),
            };
            let request = LockRequest {
                name: name.clone(),
                kind,
                cookie: lock_cookie.clone(),
                tag: lock_tag.clone(),
                description: lock_description.clone(),
                duration: Duration::from_secs(*lock_duration),
                flags: 0,
            };
            said(io.lock(object.as_bytes(), &request).await, "locking", object)
        }
        LockCommand::Break { object, name, locker, lock_cookie } => {
            let locker = LockerId { locker: instance(locker)?, cookie: lock_cookie.clone() };
            said(io.break_lock(object.as_bytes(), name, &locker).await, "breaking lock of", object)
        }
        LockCommand::Info { object, name } => {
            let info = said(io.lock_info(object.as_bytes(), name).await, "getting lock info of", object)?;
            let lockers: Vec<serde_json::Value> = info
                .lockers
                .iter()
                .map(|(id, held)| {
                    serde_json::json!({
                        "name": id.locker.to_string(), "cookie": id.cookie, "description": held.description,
                        "expiration": held.expiration.to_duration().as_secs_f64(), "addr": held.addr.to_string(),
                    })
                })
                .collect();
            let kind = info.kind.name();
            say!("{}", serde_json::json!({ "name": name, "type": kind, "tag": info.tag, "lockers": lockers }));
            Ok(())
        }
        LockCommand::List { object } => {
            let names = said(io.locks(object.as_bytes()).await, "listing locks of", object)?;
            say!("{}", serde_json::json!({ "objname": object, "locks": names }));
            Ok(())
        }
    }
}

fn instance(text: &str) -> Result<EntityInst> {
    let parsed = text.parse::<EntityName>().ok().and_then(|n| Some((n.kind, n.id.parse::<i64>().ok()?)));
    match parsed {
        Some((kind, num)) => Ok(EntityInst { kind, num }),
        None => bail!("{text:?} is no locker (client.4123): {}", Errno::EINVAL),
    }
}
