//! The verbs, one file each. Each runs as a task on the launcher's own thread,
//! so that a caller that goes away cannot leave one half done.

mod anchor;
mod cleanup;
mod clock;
mod delete;
mod dry_run;
mod ended;
mod engine;
mod evidence;
mod extend;
mod find;
mod holder;
mod launch;
mod make;
pub(crate) mod owner;
mod session;
mod shared;
mod stop;
#[cfg(test)]
mod tests;
mod wait;

pub(crate) use cleanup::Made;
pub use delete::{Deleted, delete, delete_shared};
pub use dry_run::{Answer, dry_run};
pub use ended::{HostEnd, ended};
pub(crate) use engine::Engine;
pub use extend::{ExtendError, extend};
pub(crate) use launch::{Order, launch, take_back};
pub(crate) use owner::Lost;
pub use session::{HostState, Session, list, status};
pub use shared::{SharedSession, list as list_shared};
pub(crate) use shared::{create as create_shared, take_back as take_back_shared};
