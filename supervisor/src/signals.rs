//! Signals as numbers: sets, names, rewriting, and which of them ask for a stop.
//!
//! Numbers, since glibc and musl disagree on where the real-time ones begin. Pure.

use crate::text::{self, Text};

/// The highest signal number.
pub const LAST: u8 = 64;
/// SIGCHLD, the one that is never forwarded.
pub const CHLD: u8 = 17;
/// SIGTERM.
pub const TERM: u8 = 15;
/// SIGKILL.
pub const KILL: u8 = 9;
/// SIGCONT.
pub const CONT: u8 = 18;
/// SIGSTOP.
pub const STOP: u8 = 19;

/// The names of 1 to 31, in order. (One text, since a table of them costs a relocation each.)
const NAMES: &[u8] = b"HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM \
STKFLT CHLD CONT STOP TSTP TTIN TTOU URG XCPU XFSZ VTALRM PROF WINCH IO PWR SYS";
/// Second names, and the first real-time signal as glibc counts.
const ALIASES: [(&[u8], u8); 4] = [(b"IOT", 6), (b"CLD", CHLD), (b"POLL", 29), (b"RTMIN", 34)];

fn names() -> impl Iterator<Item = (&'static [u8], u8)> {
    NAMES.split(|byte| *byte == b' ').zip(1..)
}

/// A set of signals; bit `n - 1` is signal `n`, as the kernel has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SignalSet(u64);

impl SignalSet {
    /// Every signal there is.
    pub const ALL: SignalSet = SignalSet(u64::MAX);
    /// Those a fault of one's own raises; forwarded only when someone sent them.
    pub const FAULTS: SignalSet = SignalSet::of(&[4, 5, 6, 7, 8, 11, 31]);
    /// Those a write of one's own raises, PIPE and XFSZ; the kernel names the writer as sender.
    pub const WRITE_FAULTS: SignalSet = SignalSet::of(&[13, 25]);
    /// Those that stop a job: TSTP, TTIN, TTOU.
    pub const JOB_STOPS: SignalSet = SignalSet::of(&[20, 21, 22]);
    /// Those that ask for a stop unless the flags say otherwise: TERM, INT, QUIT.
    pub const STOP_REQUESTS: SignalSet = SignalSet::of(&[2, 3, TERM]);

    /// The set of `signals`.
    pub const fn of(mut signals: &[u8]) -> SignalSet {
        let mut bits = 0;
        while let [first, rest @ ..] = signals {
            bits |= SignalSet::bit(*first);
            signals = rest;
        }
        SignalSet(bits)
    }

    const fn bit(signal: u8) -> u64 {
        if signal == 0 || signal > LAST {
            return 0;
        }
        1 << (signal - 1)
    }

    /// As the kernel wants it.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Whether `signal` is in it.
    pub const fn has(self, signal: u8) -> bool {
        self.0 & SignalSet::bit(signal) != 0
    }

    /// It with `signal`, too.
    #[must_use]
    pub const fn with(self, signal: u8) -> SignalSet {
        SignalSet(self.0 | SignalSet::bit(signal))
    }

    /// It without `signal`.
    #[must_use]
    pub const fn without(self, signal: u8) -> SignalSet {
        SignalSet(self.0 & !SignalSet::bit(signal))
    }
}

/// What each signal is sent on as; 0 drops it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rewrite([u8; 65]);

impl Rewrite {
    /// Every signal as itself.
    pub const fn none() -> Rewrite {
        let mut table = [0; 65];
        let mut rest: &mut [u8] = &mut table;
        let mut signal = 0;
        while let [first, more @ ..] = rest {
            *first = signal;
            signal = signal.wrapping_add(1);
            rest = more;
        }
        Rewrite(table)
    }

    /// Sends `from` on as `to`.
    pub fn set(&mut self, from: u8, to: u8) {
        if let Some(slot) = self.0.get_mut(usize::from(from)) {
            *slot = to;
        }
    }

    /// What `signal` is sent on as.
    pub fn of(&self, signal: u8) -> u8 {
        self.0.get(usize::from(signal)).copied().unwrap_or(0)
    }
}

/// The signal `text` names: `TERM`, `SIGTERM`, `15`, `RTMIN+3`, `RTMAX-1`, in any case.
pub fn parse(text: &[u8]) -> Option<u8> {
    if let Some(number) = text::number(text, u64::from(LAST)) {
        return u8::try_from(number).ok().filter(|number| *number > 0);
    }
    let name = match text.get(..3) {
        Some(prefix) if text::same_letters(prefix, b"SIG") => text.get(3..)?,
        _ => text,
    };
    if let Some(offset) = offset(name, b"RTMIN", b'+') {
        return Some(offset.wrapping_add(34));
    }
    if let Some(offset) = offset(name, b"RTMAX", b'-') {
        return Some(LAST.wrapping_sub(offset));
    }
    if text::same_letters(name, b"RTMAX") {
        return Some(LAST);
    }
    let mut known = names().chain(ALIASES);
    let (_, number) = known.find(|(known, _)| text::same_letters(name, known))?;
    Some(number)
}

/// N of `BASE+N` (or whatever the sign is), up to the 30 real-time signals there are.
fn offset(name: &[u8], base: &[u8], sign: u8) -> Option<u8> {
    let (found, offset) = text::split(name, sign)?;
    let offset = u8::try_from(text::number(offset, 30)?).ok()?;
    text::same_letters(found, base).then_some(offset)
}

/// Appends `SIGTERM`, or `signal 37` where there is no name.
pub fn describe<const N: usize>(line: &mut Text<N>, signal: u8) {
    match names().find(|(_, number)| *number == signal) {
        Some((name, _)) => line.push(b"SIG").push(name),
        None => line.push(b"signal ").number(u64::from(signal)),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_numbers_and_real_time_offsets_are_understood() {
        for (text, signal) in [
            ("TERM", 15),
            ("sigterm", 15),
            ("15", 15),
            ("64", 64),
            ("RTMIN", 34),
            ("SIGRTMIN+3", 37),
            ("RTMAX-1", 63),
            ("rtmax", 64),
            ("CLD", 17),
        ] {
            assert_eq!(parse(text.as_bytes()), Some(signal), "{text}");
        }
        for text in [
            "",
            "0",
            "65",
            "SIG",
            "TERMINATE",
            "RTMIN+31",
            "RTMAX-31",
            "-1",
            "RTMIN-1",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn every_name_means_what_the_kernel_of_both_architectures_means() {
        for (name, number) in [
            ("BUS", libc::SIGBUS),
            ("USR1", libc::SIGUSR1),
            ("USR2", libc::SIGUSR2),
            ("CHLD", libc::SIGCHLD),
            ("CONT", libc::SIGCONT),
            ("TSTP", libc::SIGTSTP),
            ("SYS", libc::SIGSYS),
            ("PWR", libc::SIGPWR),
            ("IO", libc::SIGIO),
            ("URG", libc::SIGURG),
        ] {
            assert_eq!(
                parse(name.as_bytes()).map(i32::from),
                Some(number),
                "{name}"
            );
        }
    }

    #[test]
    fn sets_hold_what_was_put_in() {
        let set = SignalSet::of(&[1, 64]).with(33).without(1);
        assert!(set.has(64) && set.has(33) && !set.has(1) && !set.has(0) && !set.has(65));
        assert_eq!(SignalSet::default().with(0).with(65).bits(), 0);
    }

    #[test]
    fn rewriting_changes_one_signal_and_leaves_the_rest() {
        let mut rewrite = Rewrite::none();
        rewrite.set(1, 15);
        rewrite.set(12, 0);
        assert_eq!([1, 12, 64, 17].map(|n| rewrite.of(n)), [15, 0, 64, 17]);
    }
}
