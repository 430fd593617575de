//! One binary for all targets: `FUZZ_TARGET` names the one to run. It writes the target's seeds into the directory `FUZZ_CORPUS` first.
#![no_main]

use std::sync::LazyLock;
use targets::Target;

static CHOSEN: LazyLock<&'static Target> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").expect("FUZZ_TARGET names a target");
    targets::TARGETS.iter().find(|t| t.name == name).expect("a target of that name")
});

fn write_seeds() {
    let dir = std::env::var("FUZZ_CORPUS").expect("FUZZ_CORPUS names a directory");
    std::fs::create_dir_all(&dir).expect("a corpus can be made");
    for (n, seed) in (CHOSEN.seeds)().iter().enumerate() {
        std::fs::write(format!("{dir}/seed-{n}"), seed).expect("a seed can be written");
    }
}

libfuzzer_sys::fuzz_target!(init: write_seeds(), |data: &[u8]| (CHOSEN.run)(data));
