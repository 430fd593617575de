//! Whole objects: put, get, ls, ...

use crate::out::say;
use super::said;
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use client::IoCtx;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use types::Errno;

/// Bytes per request, as the stock command has it.
const CHUNK: usize = 4 << 20;

fn is_dash(file: &Path) -> bool {
    file == Path::new("-")
}

fn source(file: &Path) -> Result<Box<dyn Read>> {
    Ok(match is_dash(file) {
        true => Box::new(std::io::stdin()),
        false => Box::new(File::open(file).with_context(|| format!("reading {}", file.display()))?),
    })
}

/// Up to a chunk; short only at the end.
fn read_chunk(from: &mut dyn Read) -> Result<Bytes> {
    let mut chunk = Vec::with_capacity(CHUNK);
    from.take(CHUNK as u64).read_to_end(&mut chunk)?;
    Ok(chunk.into())
}

pub async fn put(io: &IoCtx, object: &str, file: &Path) -> Result<()> {
    let mut from = source(file)?;
    let mut offset = 0;
    loop {
        let chunk = read_chunk(&mut from)?;
        let len = chunk.len();
        match offset {
            0 => said(io.write_full(object.as_bytes(), chunk).await, "putting", object)?,
            _ if len == 0 => return Ok(()),
            _ => said(io.write(object.as_bytes(), offset, chunk).await, "putting", object)?,
        }
        offset += len as u64;
        if len < CHUNK {
            return Ok(());
        }
    }
}

pub async fn append(io: &IoCtx, object: &str, file: &Path) -> Result<()> {
    let mut from = source(file)?;
    loop {
        let chunk = read_chunk(&mut from)?;
        let len = chunk.len();
        said(io.append(object.as_bytes(), chunk).await, "appending to", object)?;
        if len < CHUNK {
            return Ok(());
        }
    }
}

pub async fn get(io: &IoCtx, object: &str, file: &Path) -> Result<()> {
    // The object first: a missing one leaves no empty file behind.
    let mut chunk = said(io.read(object.as_bytes(), 0, CHUNK as u64).await, "getting", object)?;
    let mut to: Box<dyn Write> = match is_dash(file) {
        true => Box::new(std::io::stdout()),
        false => Box::new(File::create(file).with_context(|| format!("writing {}", file.display()))?),
    };
    let mut offset = 0;
    loop {
        to.write_all(&chunk)?;
        offset += chunk.len() as u64;
        if chunk.len() < CHUNK {
            return Ok(to.flush()?);
        }
        chunk = said(io.read(object.as_bytes(), offset, CHUNK as u64).await, "getting", object)?;
    }
}

pub async fn list(io: &IoCtx, all: bool) -> Result<()> {
    let io = if all { io.namespace(IoCtx::ALL_NAMESPACES) } else { io.clone() };
    let mut out = std::io::stdout().lock();
    for entry in said(io.list().await, "listing", "objects")? {
        if all {
            write!(out, "{}\t", entry.nspace)?;
        }
        match entry.key.is_empty() {
            true => writeln!(out, "{}", entry.name)?,
            false => writeln!(out, "{}\t{}", entry.name, entry.key)?,
        }
    }
    Ok(())
}

pub async fn stat(io: &IoCtx, object: &str) -> Result<()> {
    let (size, mtime) = said(io.stat(object.as_bytes()).await, "stat-ing", object)?;
    say!("{object} mtime {}, size {size}", mtime);
    Ok(())
}

pub async fn remove(io: &IoCtx, objects: &[String]) -> Result<()> {
    for object in objects {
        said(io.remove_when_full(object.as_bytes()).await, "removing", object)?;
    }
    Ok(())
}

/// Removes every object of the pool, in all namespaces.
pub async fn purge(io: &IoCtx) -> Result<()> {
    let entries = said(io.namespace(IoCtx::ALL_NAMESPACES).list().await, "listing", "objects")?;
    for entry in &entries {
        let io = io.namespace(entry.nspace.clone()).locator_key(entry.key.clone());
        match io.remove_when_full(&entry.name).await {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(errno) => bail!("error removing {}: {errno}", entry.name),
        }
    }
    say!("removed {} objects", entries.len());
    Ok(())
}
