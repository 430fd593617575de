//! Whole objects: put, get, ls, ...

use super::said;
use anyhow::{Context, Result};
use bytes::Bytes;
use client::IoCtx;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

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
    println!("{object} mtime {}, size {size}", date(mtime.to_duration()));
    Ok(())
}

pub async fn remove(io: &IoCtx, objects: &[String]) -> Result<()> {
    for object in objects {
        said(io.remove_when_full(object.as_bytes()).await, "removing", object)?;
    }
    Ok(())
}

/// `2026-11-20T18:55:00.000000+0000`.
fn date(since_1970: Duration) -> String {
    let secs = since_1970.as_secs();
    let (days, rest) = (secs / 86400, secs % 86400);
    let (year, month, day) = civil(days as i64);
    let (h, m, s) = (rest / 3600, rest / 60 % 60, rest % 60);
    debug_assert!(UNIX_EPOCH + since_1970 >= UNIX_EPOCH);
    format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}.{:06}+0000", since_1970.subsec_micros())
}

/// Year, month, day of a day since 1970, in the proleptic Gregorian calendar (years begin in March while counting).
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_printed_as_utc() {
        assert_eq!(date(Duration::from_micros(0)), "1970-01-01T00:00:00.000000+0000");
        assert_eq!(date(Duration::new(951_782_400, 5_000)), "2000-02-29T00:00:00.000005+0000");
        assert_eq!(date(Duration::new(1_795_200_900, 0)), "2026-11-20T18:55:00.000000+0000");
    }
}
