//! An option that the table calls effective is read somewhere: this test reads our own source.

use std::fs;
use std::path::{Path, PathBuf};

fn sources(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            sources(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

#[test]
fn effective_options_are_read_by_someone() {
    let crates = Path::new("..");
    let mut files = vec![];
    sources(crates, &mut files);
    // The tables themselves, and what tests set, do not count.
    files.retain(|f| !f.starts_with(crates.join("admin/src/option")) && !f.components().any(|c| c.as_os_str() == "tests"));
    let text: String = files.iter().map(|f| fs::read_to_string(f).unwrap()).collect();
    let effective = admin::option::all().into_iter().filter(|o| o.effective).map(|o| o.name);
    let idle: Vec<&str> = effective
        .filter(|name| !text.contains(&format!("\"{name}\"")) && !text.contains(&format!("\"{}\"", name.replace('_', " "))))
        .collect();
    assert!(idle.is_empty(), "called effective and read by nobody: {idle:?}");
}
