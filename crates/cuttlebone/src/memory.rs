//! How much memory this machine has, and how much of it a control group leaves us.

use osd::HostMemory;
use std::fs;
use std::path::Path;

/// What is known of both; 0 where nothing is.
pub fn of_host() -> HostMemory {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    HostMemory { total: total_of(&meminfo), limit: limit_of(&groups, Path::new("/sys/fs/cgroup")) }
}

fn total_of(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).map_or(0, |kb| kb * 1024)
}

/// The smallest limit of the groups that the process is in, of either kind: its own, or the one that a container sees as the root.
fn limit_of(groups: &str, root: &Path) -> u64 {
    let mut limits = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (base, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            list if list.split(',').any(|c| c == "memory") => (root.join("memory"), "memory.limit_in_bytes"),
            _ => continue,
        };
        // Groups above limit it too.
        let own = base.join(path.trim_start_matches('/'));
        limits.extend(own.ancestors().take_while(|dir| dir.starts_with(&base)).filter_map(|dir| read_limit(&dir.join(file))));
        limits.extend(read_limit(&base.join(file)));
    }
    limits.into_iter().min().unwrap_or(0)
}

/// No limit is the word `max`, or a number close to what fits.
fn read_limit(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse::<u64>().ok().filter(|limit| *limit < 1 << 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_limit_above_us_counts() {
        let root = std::env::temp_dir().join(format!("cuttlebone-cgroup-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let file = root.join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        write("memory/memory.limit_in_bytes", "9223372036854771712\n");
        write("memory/a/memory.limit_in_bytes", "2147483648\n");
        write("memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
        write("u/memory.max", "max\n");
        write("u/v/memory.max", "1000\n");
        assert_eq!(limit_of("4:memory:/a/b\n3:cpu,cpuacct:/x\n", &root), 2 << 30);
        assert_eq!(limit_of("0::/u/v\n", &root), 1000);
        assert_eq!(limit_of("0::/u\n", &root), 0);
        assert_eq!(limit_of("", &root), 0);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(total_of("MemFree: 1 kB\nMemTotal:       16 kB\n"), 16384);
    }
}
