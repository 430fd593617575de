//! Pools and how full they are.

use crate::out::say;
use crate::session::Session;
use anyhow::{Result, bail};

pub fn list(session: &Session) -> Result<()> {
    for name in session.block_on(session.handle.pools())?.values() {
        say!("{name}");
    }
    Ok(())
}

pub fn create(session: &Session, name: &str) -> Result<()> {
    match session.block_on(session.handle.create_pool(name)) {
        Ok(()) => say!("successfully created pool {name}"),
        Err(errno) => bail!("error creating pool {name}: {errno}"),
    }
    Ok(())
}

pub fn remove(session: &Session, name: &str, again: &str, sure: bool) -> Result<()> {
    if name != again || !sure {
        bail!(
            "this permanently destroys all data of pool {name}: \
             give the name twice and --yes-i-really-really-mean-it if you are certain"
        );
    }
    match session.block_on(session.handle.delete_pool(name)) {
        Ok(()) => say!("successfully deleted pool {name}"),
        Err(types::Errno::EPERM) => bail!("pool deletion is disabled: set mon_allow_pool_delete to true first"),
        Err(errno) => bail!("error deleting pool {name}: {errno}"),
    }
    Ok(())
}

pub fn usage(session: &Session) -> Result<()> {
    let names: Vec<String> = session.block_on(session.handle.pools())?.into_values().collect();
    let stats = session.block_on(session.handle.pool_stats(names))?;
    say!("{:<24} {:>12} {:>10} {:>8} {:>12} {:>12}", "POOL_NAME", "USED", "OBJECTS", "COPIES", "READ_OPS", "WRITE_OPS");
    for (name, stat) in &stats {
        let sum = &stat.stats.sum;
        let used = bytes(sum.num_bytes.max(0) as u64);
        say!(
            "{name:<24} {used:>12} {:>10} {:>8} {:>12} {:>12}",
            sum.num_objects, sum.num_object_copies, sum.num_rd, sum.num_wr
        );
    }
    let all = session.block_on(session.handle.usage(None))?;
    say!("");
    say!("total_objects    {}", all.objects);
    say!("total_used       {}", bytes(all.kb_used << 10));
    say!("total_avail      {}", bytes(all.kb_avail << 10));
    say!("total_space      {}", bytes(all.kb << 10));
    Ok(())
}

/// `1.5 GiB`.
fn bytes(n: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let step = (63 - n.max(1).leading_zeros() as usize) / 10;
    match step {
        0 => format!("{n} B"),
        _ => format!("{:.1} {}", n as f64 / (1u64 << (10 * step)) as f64, units[step]),
    }
}
