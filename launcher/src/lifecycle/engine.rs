//! What all operations of a launcher's thread share.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::owner::Owners;
use super::shared::Sessions;
use crate::cluster::Cluster;
use crate::watch::Hub;

/// So many launches write at a time, and so many clean up: what they need
/// meanwhile is a hundred times what one takes that waits for its host.
const AT_ONCE: usize = 32;

/// The clients, and what is known or limited across launches.
#[derive(Clone)]
pub(crate) struct Engine {
    pub cluster: Cluster,
    pub hub: Hub,
    pub owners: Owners,
    pub sessions: Sessions,
    pub(super) writers: Arc<Semaphore>,
    pub(super) cleaners: Arc<Semaphore>,
}

impl Engine {
    /// Must be called on the runtime that will use it.
    pub(crate) fn new(cluster: Cluster, owners: Owners) -> Self {
        let hub = Hub::new(&cluster);
        Self {
            cluster,
            hub,
            owners,
            sessions: Sessions::default(),
            writers: Arc::new(Semaphore::new(AT_ONCE)),
            cleaners: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }
}
