//! The images as they were baked: what the archives in `out/images` hold, that
//! baking again gives the same digest, what the bills of materials list, how
//! the credential helper behaves, and the images at work under docker and podman.
//! Under a kubelet they are at work in the end-to-end suite.
#![allow(clippy::unwrap_used, missing_docs)]

mod archive;
mod bake;
mod bill;
mod containers;
mod contents;
mod credential;
mod engine;
mod podman;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use podcradle_tests::harness::Suite;

/// The images, and what each owes: bytes compressed, for one architecture.
pub const IMAGES: [(&str, Option<u64>); 3] = [
    ("supervisor", Some(100_000)),
    ("launcher", Some(10_000_000)),
    ("sandbox", None),
];

/// The repository.
pub fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap_or(tests).to_owned()
}

fn main() -> ExitCode {
    let mut suite = Suite::new();
    for (image, limit) in IMAGES {
        contents::add(&mut suite, image, limit);
        bill::add(&mut suite, image);
    }
    credential::add(&mut suite);
    bake::add(&mut suite);
    podman::add(&mut suite);
    let engine = Arc::default();
    containers::add(&mut suite, &engine);
    let code = suite.run();
    engine.stop();
    code
}
