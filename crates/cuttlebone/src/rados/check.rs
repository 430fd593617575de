//! `rados check`: does the cluster do what RADOS must do?

use crate::out::say;
use crate::session::Session;
use anyhow::{Result, bail};
use clap::Args;
use client::{IoCtx, check};
use std::time::{Duration, Instant};

/// How long one check is given.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Args)]
pub struct CheckArgs {
    /// Names of checks; all of them without any
    only: Vec<String>,
}

/// Runs checks in a pool that holds nothing else of value. Errors: a check failed, or has no such name.
pub fn run(session: &Session, io: &IoCtx, args: &CheckArgs) -> Result<()> {
    if let Some(unknown) = args.only.iter().find(|name| !check::NAMES.contains(&name.as_str())) {
        bail!("no check is called {unknown}; there are: {}", check::NAMES.join(", "));
    }
    session.block_on(check::clean(&session.handle, io))?;
    let chosen: Vec<&str> =
        check::NAMES.iter().copied().filter(|n| args.only.is_empty() || args.only.iter().any(|o| o == n)).collect();
    let mut failed = 0;
    for name in &chosen {
        let begin = Instant::now();
        match session.block_on_for(check::run(name, &session.handle, io), PATIENCE).flatten() {
            Some(Ok(())) => {
                say!("ok     {name} ({} ms)", begin.elapsed().as_millis());
                continue;
            }
            Some(Err(fault)) => say!("FAILED {name}: {fault}"),
            None => say!("FAILED {name}: no answer within {} s", PATIENCE.as_secs()),
        }
        failed += 1;
    }
    if failed > 0 {
        bail!("{failed} of {} checks failed", chosen.len());
    }
    Ok(())
}
