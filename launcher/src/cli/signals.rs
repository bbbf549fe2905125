//! SIGINT and SIGTERM: the first one asks for the end, with clean-up; Ctrl-C
//! after that quits at once. A second SIGTERM does not: `timeout` and service
//! managers send it to a process and once more to its group.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tokio::sync::mpsc;

/// The signals that arrive from now on.
///
/// # Errors
/// When the operating system refuses the handlers.
pub fn listen() -> std::io::Result<mpsc::UnboundedReceiver<i32>> {
    let asked = Arc::new(AtomicBool::new(false));
    // Armed once the first signal has been taken, below.
    signal_hook::flag::register_conditional_shutdown(SIGINT, 128 + SIGINT, Arc::clone(&asked))?;
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for signal in signals.forever() {
                asked.store(true, Ordering::SeqCst);
                if sender.send(signal).is_err() {
                    break;
                }
            }
        })?;
    Ok(receiver)
}
