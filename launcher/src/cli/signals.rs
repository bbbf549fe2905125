//! SIGINT, SIGTERM and SIGHUP: the first one asks for the end, with clean-up;
//! Ctrl-C after that quits at once. A second SIGTERM does not: `timeout` and
//! service managers send it to a process and once more to its group. Nor does a
//! second SIGHUP: of a terminal that goes, its shell and the kernel both tell.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
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
    // `nohup` wants this to outlive its terminal.
    if !is_ignored(SIGHUP) {
        signals.add_signal(SIGHUP)?;
    }
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

/// Whether whoever started this had a signal ignored.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0);
    ignored & (1 << (signal - 1)) != 0
}
