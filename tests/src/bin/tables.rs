//! Writes `docs/_generated`, or with `--check` says where it differs from the code: `cargo xtask docs`.

use std::process::ExitCode;

use xtask::{
    docs,
    tree::{self, Tree},
};

fn main() -> ExitCode {
    let check = std::env::args().any(|arg| arg == "--check");
    let root = tree::root();
    let produced = tests::pages();
    let told = Tree::read(&root).and_then(|tree| {
        let committed = docs::committed(&tree);
        if check {
            return Ok(docs::compare(&produced, &committed));
        }
        docs::write(&root, &produced, &committed)
    });
    match told {
        Ok(lines) => {
            lines.iter().for_each(|line| println!("{line}"));
            if check && !lines.is_empty() {
                ExitCode::FAILURE
            } else {
                ExitCode::SUCCESS
            }
        }
        Err(error) => {
            eprintln!("tables: {}: {error}", root.display());
            ExitCode::FAILURE
        }
    }
}
