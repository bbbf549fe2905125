//! Fixtures.

pub mod e2e;
pub mod harness;
pub mod pidns;
pub mod testbed;
pub mod testserver;
