//! `podcradle-init`.
fn main() {}
