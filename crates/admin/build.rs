//! Lists the files of the live page, so that a new file is served without being named anywhere.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

const FOLDER: &str = "src/page";
const KINDS: [&str; 4] = ["css", "html", "js", "svg"];

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join(FOLDER);
    let mut files = Vec::new();
    collect(&root, &mut files)?;
    files.sort();
    let rows = files.iter().map(|path| {
        let name = path.strip_prefix(&root).unwrap_or(path);
        format!("Asset::new({name:?}, include_str!({path:?})),\n")
    });
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    fs::write(
        out.join("page_files.rs"),
        format!("vec![{}]", rows.collect::<String>()),
    )
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    // Cargo checks a folder for added and removed files. The compiler tracks changes of a file.
    println!("cargo::rerun-if-changed={}", folder.display());
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let kind = path.extension().and_then(|kind| kind.to_str());
        if path.is_dir() {
            collect(&path, files)?;
        } else if kind.is_some_and(|kind| KINDS.contains(&kind)) {
            files.push(path);
        }
    }
    Ok(())
}
