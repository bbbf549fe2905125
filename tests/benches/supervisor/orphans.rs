//! The host of the orphan bursts: double forks, a hundred at a time.

use std::io::{self, BufRead, Write};
use std::ptr;

const BATCH: usize = 100;

/// Says "start", waits for a line, makes `count` orphans as fast as it can,
/// says "made COUNT" and waits for the end of its input.
pub fn make(count: usize) -> io::Result<()> {
    println!("start");
    io::stdout().flush()?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    let mut made = 0;
    while made < count {
        let batch = BATCH.min(count - made);
        // SAFETY: this process has one thread, and its children only fork and exit.
        let middle = unsafe { libc::fork() };
        match middle {
            -1 => return Err(io::Error::last_os_error()),
            0 => {
                for _ in 0..batch {
                    // SAFETY: as above.
                    unsafe {
                        if libc::fork() == 0 {
                            libc::_exit(0);
                        }
                    }
                }
                // SAFETY: as above.
                unsafe { libc::_exit(0) };
            }
            // SAFETY: our own child; the status is not asked for.
            _ => unsafe { libc::waitpid(middle, ptr::null_mut(), 0) },
        };
        made += batch;
    }
    println!("made {count}");
    io::stdout().flush()?;
    io::stdin().lock().read_line(&mut line)?;
    Ok(())
}
