//! The profile that the compiler of the image goes by (`make pgo`).

use std::process::Command;

#[test]
fn the_compiler_reads_the_profile_of_the_image() {
    let folder = tempfile::tempdir().expect("a folder");
    let (source, object) = (folder.path().join("main.rs"), folder.path().join("main.o"));
    std::fs::write(&source, "fn main() {}").expect("written");
    let profile = concat!(env!("CARGO_MANIFEST_DIR"), "/src/pgo.profdata");
    let output = Command::new("rustc")
        .args(["-O", "--emit=obj", "-D", "warnings"])
        .arg(format!("-Cprofile-use={profile}"))
        .arg("-o")
        .args([&object, &source])
        .output()
        .expect("a compiler");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
}
