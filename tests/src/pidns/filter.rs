//! Seccomp filters that refuse chosen system calls.
//!
//! They play the container profiles and emulators of this world, which answer
//! calls they do not know with EPERM or ENOSYS. The filter binds every process
//! that comes after it, the host and (under emulation) the emulator too.

use std::io;

const LD_W_ABS: u16 = 0x20;
const JEQ_K: u16 = 0x15;
const JGE_K: u16 = 0x35;
const RET_K: u16 = 0x06;
const ALLOW: u32 = 0x7fff_0000;
const ERRNO: u32 = 0x0005_0000;
/// Offset of the system call's number in `struct seccomp_data`.
const NUMBER: u32 = 0;
/// Offset of the low half of its first argument (both targets are little endian).
const FIRST: u32 = 16;
/// The same of its second.
const SECOND: u32 = 24;

/// A classic BPF program over system calls; what no rule names is allowed.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    rules: Vec<libc::sock_filter>,
}

fn step(code: u16, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

fn number(call: libc::c_long) -> u32 {
    u32::try_from(call).unwrap_or(u32::MAX)
}

fn refuse(errno: i32) -> u32 {
    ERRNO | u32::try_from(errno).unwrap_or(0)
}

impl Filter {
    /// A filter that refuses nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// `call` fails with `errno`.
    #[must_use]
    pub fn deny(mut self, call: libc::c_long, errno: i32) -> Self {
        self.rules.extend([
            step(LD_W_ABS, 0, 0, NUMBER),
            step(JEQ_K, 0, 1, number(call)),
            step(RET_K, 0, 0, refuse(errno)),
        ]);
        self
    }

    /// `call` fails with `errno` when the low 32 bits of its first argument
    /// are `first`: one option of `prctl`.
    #[must_use]
    pub fn deny_first(self, call: libc::c_long, first: u32, errno: i32) -> Self {
        self.deny_argument(call, FIRST, first, errno)
    }

    /// `call` fails with `errno` when the low 32 bits of its second argument
    /// are `second`: one request of `ioctl`.
    #[must_use]
    pub fn deny_request(self, call: libc::c_long, second: u32, errno: i32) -> Self {
        self.deny_argument(call, SECOND, second, errno)
    }

    fn deny_argument(mut self, call: libc::c_long, offset: u32, value: u32, errno: i32) -> Self {
        self.rules.extend([
            step(LD_W_ABS, 0, 0, NUMBER),
            step(JEQ_K, 0, 3, number(call)),
            step(LD_W_ABS, 0, 0, offset),
            step(JEQ_K, 0, 1, value),
            step(RET_K, 0, 0, refuse(errno)),
        ]);
        self
    }

    /// `call` works even when a later rule would refuse it.
    #[must_use]
    pub fn allow(mut self, call: libc::c_long) -> Self {
        self.rules.extend([
            step(LD_W_ABS, 0, 0, NUMBER),
            step(JEQ_K, 0, 1, number(call)),
            step(RET_K, 0, 0, ALLOW),
        ]);
        self
    }

    /// Every call whose number is `first` or above fails with `errno`: what a
    /// profile written before those calls existed does.
    #[must_use]
    pub fn deny_from(mut self, first: libc::c_long, errno: i32) -> Self {
        self.rules.extend([
            step(LD_W_ABS, 0, 0, NUMBER),
            step(JGE_K, 0, 1, number(first)),
            step(RET_K, 0, 0, refuse(errno)),
        ]);
        self
    }

    /// What a container profile of 2017 makes of all calls that came after it, the first of
    /// them `statx`: they fail with `errno`.
    pub fn of_2017(errno: i32) -> Self {
        // Numbers from 424 on are the same everywhere; these are not.
        Self::new().deny_from(libc::SYS_statx, errno)
    }

    /// The program with its closing "allow", ready for [`install`].
    pub(super) fn finish(&self) -> Vec<libc::sock_filter> {
        let mut program = self.rules.clone();
        program.push(step(RET_K, 0, 0, ALLOW));
        program
    }
}

/// Puts the program in force for this process; allocates nothing, so that it
/// may run between clone and exec.
pub(super) fn install(program: &[libc::sock_filter]) -> io::Result<()> {
    let header = libc::sock_fprog {
        len: u16::try_from(program.len()).unwrap_or(u16::MAX),
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: plain prctl calls; `header` and the program outlive them.
    unsafe {
        let put = || libc::prctl(libc::PR_SET_SECCOMP, 2, &raw const header, 0, 0) == 0;
        // Root may without giving up what a test may want to look at.
        if put() || libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && put() {
            return Ok(());
        }
    }
    Err(io::Error::last_os_error())
}
