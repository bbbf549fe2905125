//! Fixtures.

pub mod harness;
pub mod pidns;
pub mod testserver;
