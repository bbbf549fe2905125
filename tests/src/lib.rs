//! Fixtures.

pub mod harness;
pub mod pidns;
