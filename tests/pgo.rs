//! The profile for building the image's program (`make pgo`).

use std::process::Command;

#[test]
fn the_compiler_reads_the_profile_of_the_image() {
    let folder = tempfile::tempdir().expect("a folder");
    let (source, object) = (folder.path().join("main.rs"), folder.path().join("main.o"));
    std::fs::write(&source, "fn main() {}").expect("written");
    let profile = concat!(env!("CARGO_MANIFEST_DIR"), "/release/pgo.profdata");
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

/// SECURITY.md explains how to rebuild the image's program with the command of the Dockerfile.
#[test]
fn every_description_builds_the_image_alike() {
    let read = |name: &str| {
        let path = format!("{}/{name}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).expect(name)
    };
    let makefile = read("Makefile");
    let mut lines = makefile.lines();
    let flags = lines.find_map(|line| line.strip_prefix("STATIC := "));
    let flags = flags.expect("the flags of the last step");
    let command = format!("cargo rustc --locked --profile image --bin tokengauge -- {flags}");
    for name in ["Dockerfile", "SECURITY.md"] {
        let text = read(name).replace("\\\n", " ");
        let words: Vec<_> = text.split_whitespace().collect();
        assert!(words.join(" ").contains(&command), "{name}: {command}");
    }
}
