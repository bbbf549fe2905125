//! Fixtures.

pub mod e2e;
pub mod fakeapi;
pub mod harness;
pub mod pidns;
mod serving;
pub mod testbed;
pub mod testserver;
