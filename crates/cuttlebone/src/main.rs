mod flags;
mod process;
fn main() {}
