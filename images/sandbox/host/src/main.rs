//! `host`.
fn main() {}
