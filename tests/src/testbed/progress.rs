//! What a person sees while the test bed works: on a terminal one live line
//! for what goes on, elsewhere a plain line at each start and end.

use std::io::{self, IsTerminal, Write};
use std::time::Instant;

/// Writes to standard error, so that results can have standard output.
pub struct Progress {
    began: Instant,
    live: bool,
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

impl Progress {
    /// Starts the clock.
    pub fn new() -> Self {
        Self {
            began: Instant::now(),
            live: io::stderr().is_terminal(),
        }
    }

    /// Something is done; it stays on the screen.
    pub fn done(&self, text: &str) {
        let erase = if self.live { "\r\x1b[K" } else { "" };
        let seconds = self.began.elapsed().as_secs_f64();
        // A closed standard error is no reason to stop.
        let _ = writeln!(io::stderr(), "{erase}{seconds:7.1}s {text}");
    }

    /// Something begins; on a terminal the next line takes its place.
    pub fn begin(&self, text: &str) {
        if self.live {
            self.live(text);
        } else {
            self.done(text);
        }
    }

    /// Something goes on; shown on a terminal only.
    pub fn live(&self, text: &str) {
        if self.live {
            let seconds = self.began.elapsed().as_secs_f64();
            let mut out = io::stderr();
            let _ = write!(out, "\r\x1b[K{seconds:7.1}s {text}");
            let _ = out.flush();
        }
    }
}
