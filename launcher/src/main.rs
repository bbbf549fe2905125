//! `podcradle`.
fn main() {}
