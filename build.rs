//! Links what a start and a call run side by side, so that few pages of the program are resident.

use std::env;

/// The functions, by name. `make link-order` writes it anew.
const ORDER: &str = "src/link-order.ld";

fn main() {
    println!("cargo:rerun-if-changed={ORDER}");
    if !(optimized() && own_linker()) {
        return;
    }
    let root = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    println!("cargo:rustc-link-arg-bins=-T{root}/{ORDER}");
}

/// Whether the profile is one to run with; the others should link fast.
fn optimized() -> bool {
    env::var("OPT_LEVEL").is_ok_and(|level| level != "0" && level != "1")
}

/// Whether Rust's own linker is used, which takes such scripts; mold, for one, does not.
fn own_linker() -> bool {
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let other = ["linker=", "link-arg", "fuse-ld", "linker-flavor"];
    env::var("TARGET").is_ok_and(|target| target == "x86_64-unknown-linux-gnu")
        && env::var_os("RUSTC_LINKER").is_none()
        && !other.iter().any(|flag| flags.contains(flag))
}
