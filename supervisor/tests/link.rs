//! The linker's check for panic machinery, checked: a program that cannot panic links, one

#![allow(clippy::unwrap_used, reason = "a test may")]
//! that can does not. Without this, a change of the toolchain's section names would turn
//! `no-panic.ld` into a check that never fails.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const TARGETS: [(&str, &str); 2] = [
    ("x86_64-unknown-linux-musl", "x86_64-linux-gnu-ld"),
    ("aarch64-unknown-linux-musl", "aarch64-linux-gnu-ld"),
];

fn program(body: &str) -> String {
    format!(
        "#![no_main]\n#[unsafe(no_mangle)]\npub extern \"C\" fn main(count: usize, \
         _: *const *const u8) -> i32 {{\n let table = [1, 2, 3];\n {body}\n}}\n"
    )
}

/// Builds as the profile `supervisor` does.
fn link(target: &str, linker: &str, body: &str) -> Output {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("main.rs");
    fs::write(&source, program(body)).unwrap();
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc
        .current_dir(here)
        .args(["--edition=2024", "--crate-name=probe", "--target", target]);
    for option in [
        "opt-level=z",
        "lto=fat",
        "codegen-units=1",
        "panic=abort",
        "strip=symbols",
    ] {
        rustc.args(["-C", option]);
    }
    rustc.args(["-C", "linker-flavor=ld", "-C", "link-self-contained=yes"]);
    rustc.arg("-C").arg(format!("linker={linker}"));
    rustc
        .arg("-C")
        .arg(format!("link-arg=--script={}/no-panic.ld", here.display()));
    rustc
        .arg("-o")
        .arg(folder.path().join("probe"))
        .arg(source)
        .output()
        .unwrap()
}

#[test]
fn what_cannot_panic_links() {
    for (target, linker) in TARGETS {
        let output = link(target, linker, "table.get(count).copied().unwrap_or(0)");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{target}: {said}");
    }
}

#[test]
fn what_can_panic_does_not_link() {
    for (target, linker) in TARGETS {
        for body in [
            "table[count]",
            "10 / count as i32",
            "Some(1).filter(|_| count > 1).expect(\"two\")",
            "vec![0; count].len() as i32",
        ] {
            let output = link(target, linker, body);
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success(), "{target}: {body} was linked");
            assert!(
                said.contains("something in it can panic"),
                "{target}: {body}: {said}"
            );
        }
    }
}
