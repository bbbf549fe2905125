//! The node's network: one bridge that carries the node's address and the pods.
//! No address translation and no forwarding: nothing here leaves the machine.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::error::Result;
use super::layout::Layout;
use super::process::run;
use super::subnet::Subnet;

fn ip(args: &[&str]) -> Result<()> {
    run(Command::new("ip").args(args)).map(|_| ())
}

/// Makes the bridge.
pub(super) fn up(layout: &Layout, subnet: Subnet) -> Result<()> {
    let bridge = layout.bridge();
    ip(&["link", "add", &bridge, "type", "bridge"])?;
    let address = format!("{}/{}", subnet.node(), subnet.prefix());
    ip(&["address", "add", &address, "dev", &bridge])?;
    ip(&["link", "set", &bridge, "up"])
}

/// Whether the bridge is there.
pub(super) fn exists(layout: &Layout) -> bool {
    Path::new("/sys/class/net").join(layout.bridge()).exists()
}

/// Removes the bridge and what hangs on it: a pod's end of a pair goes with its
/// network namespace, but the kernel takes its time for that.
pub(super) fn down(layout: &Layout) -> Result<()> {
    if !exists(layout) {
        return Ok(());
    }
    let bridge = layout.bridge();
    let ports = Path::new("/sys/class/net").join(&bridge).join("brif");
    for port in fs::read_dir(ports).into_iter().flatten().flatten() {
        let port = port.file_name().to_string_lossy().into_owned();
        // It may have gone by itself meanwhile.
        let _ = ip(&["link", "delete", &port]);
    }
    ip(&["link", "delete", &bridge])
}
