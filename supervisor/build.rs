//! Adds the linker's check that no panic machinery is left (`no-panic.ld`) to the builds
//! that end up in images: those of profile `supervisor`, the only one at `opt-level = "z"`,
//! for the musl targets.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=no-panic.ld");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    if is("OPT_LEVEL", "z") && is("CARGO_CFG_TARGET_ENV", "musl") {
        let here = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
        println!("cargo::rustc-link-arg-bins=--script={here}/no-panic.ld");
        // No page of its own for what nothing would protect: musl's start of a static program
        // makes no data read-only. One page less to be written to at each start.
        println!("cargo::rustc-link-arg-bins=-znorelro");
        // One segment for code and constants: no page of padding between them.
        println!("cargo::rustc-link-arg-bins=-znoseparate-code");
    }
}
