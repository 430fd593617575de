//! One binary for all targets: `FUZZ_TARGET` names the one to run.
#![no_main]

use std::sync::LazyLock;
use targets::Target;

static CHOSEN: LazyLock<&'static Target> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").expect("FUZZ_TARGET names a target");
    targets::TARGETS.iter().find(|t| t.name == name).expect("a target of that name")
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| (CHOSEN.run)(data));
