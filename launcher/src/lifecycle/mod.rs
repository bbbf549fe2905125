//! The verbs, one file each. Each runs as a task on the launcher's own thread,
//! so that a caller that goes away cannot leave one half done.

mod anchor;
mod cleanup;
mod delete;
mod dry_run;
mod evidence;
mod launch;
mod session;
mod stop;
mod wait;

pub use delete::{Deleted, delete};
pub use dry_run::{Answer, dry_run};
pub(crate) use launch::{Order, launch};
pub use session::{HostState, Session, list, status};
