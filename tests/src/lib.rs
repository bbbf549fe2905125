//! Fixtures.

pub mod e2e;
pub mod fakeapi;
pub mod harness;
pub mod pidns;
pub mod testbed;
pub mod testserver;
