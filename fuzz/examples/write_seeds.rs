//! Writes every target's seeds as files for libFuzzer: `write_seeds DIR`.

fn main() -> std::io::Result<()> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| "corpus".into());
    for target in targets::TARGETS {
        let dir = format!("{dir}/{}", target.name);
        std::fs::create_dir_all(&dir)?;
        for (n, seed) in (target.seeds)().iter().enumerate() {
            std::fs::write(format!("{dir}/seed-{n}"), seed)?;
        }
    }
    Ok(())
}
