//! From a [`Plan`] to a running process, through one raw clone.
//!
//! The test process has many threads, so what happens between clone and exec
//! makes system calls only: every string and table was made before.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use super::filter;
use super::{Error, Result};

/// A mount made in the private namespace.
#[derive(Debug)]
pub(super) enum Mount {
    Bind(CString, CString),
    Proc,
    /// Hides a directory behind an empty file system.
    Empty(CString),
    /// A disk of this size (`size=N`).
    Disk(CString, CString),
    ReadOnlyRoot,
}

/// All that differs between one start and another.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub file: CString,
    pub argv: Vec<CString>,
    pub env: Vec<CString>,
    pub directory: CString,
    pub root: Option<CString>,
    /// (what, where): the descriptor `what` becomes `where`.
    pub descriptors: Vec<(RawFd, RawFd)>,
    pub close: Vec<RawFd>,
    /// Start a session; with true its terminal is descriptor 0.
    pub session: Option<bool>,
    pub mounts: Vec<Mount>,
    /// Open descriptors of the `tasks` or `cgroup.procs` files to enter.
    pub cgroups: Vec<OwnedFd>,
    pub limits: Vec<(libc::__rlimit_resource_t, u64)>,
    pub without_cap_kill: bool,
    pub uid: Option<u32>,
    pub ignored: Vec<i32>,
    pub blocked: Vec<i32>,
    pub pending: Vec<i32>,
    pub filter: Option<Vec<libc::sock_filter>>,
}

const STEPS: [&str; 13] = [
    "make the session",
    "enter the cgroup",
    "mount",
    "change the root",
    "set a limit",
    "move the descriptors",
    "change the directory",
    "drop CAP_KILL",
    "change the user",
    "set the dispositions",
    "set the mask",
    "install the filter",
    "exec",
];

/// Nanoseconds on the monotonic clock, as every process of the machine sees it.
pub fn monotonic() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}

/// A time the child notes and we read, in a page that a clone does not copy.
struct Moment(ptr::NonNull<AtomicU64>);

impl Moment {
    fn new() -> Result<Self> {
        // SAFETY: a fresh mapping; its zero bytes are a valid atomic.
        let page = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let kind = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
            libc::mmap(ptr::null_mut(), size_of::<u64>(), access, kind, -1, 0)
        };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error().into());
        }
        ptr::NonNull::new(page.cast())
            .map(Self)
            .ok_or(Error::Step("map a page", io::ErrorKind::OutOfMemory.into()))
    }

    fn note(&self) {
        // SAFETY: mapped for as long as `self` lives.
        unsafe { self.0.as_ref() }.store(monotonic(), Ordering::Release);
    }

    fn noted(&self) -> u64 {
        // SAFETY: as above.
        unsafe { self.0.as_ref() }.load(Ordering::Acquire)
    }
}

impl Drop for Moment {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which nobody refers to any more.
        unsafe { libc::munmap(self.0.as_ptr().cast(), size_of::<u64>()) };
    }
}

/// Starts the plan as the init of a new pid namespace, and of a mount namespace
/// where it mounts; returns its pid and when its exec began, once that has
/// happened.
pub(super) fn spawn(plan: &Plan) -> Result<(i32, u64)> {
    let argv = pointers(&plan.argv);
    let env = pointers(&plan.env);
    let (reader, writer) = pipe()?;
    let mounts = if plan.mounts.is_empty() {
        0
    } else {
        libc::CLONE_NEWNS
    };
    let flags = libc::CLONE_NEWPID | mounts | libc::SIGCHLD;
    let launched = Moment::new()?;
    // SAFETY: without a stack of its own clone behaves like fork: the child
    // goes on here with a copy of everything, and only makes system calls.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::c_long::from(flags), 0, 0, 0, 0) };
    if pid == 0 {
        let step = match become_init(plan, &argv, &env, &launched) {
            Ok(never) => match never {},
            Err((step, error)) => [step, error.raw_os_error().map_or(0, |e| e.to_le_bytes()[0])],
        };
        // SAFETY: plain system calls; nothing of the parent's is unwound.
        unsafe {
            libc::write(writer.as_raw_fd(), step.as_ptr().cast(), step.len());
            libc::_exit(125);
        }
    }
    let pid = i32::try_from(pid).unwrap_or(-1);
    if pid < 0 {
        return Err(Error::Step("clone", io::Error::last_os_error()));
    }
    drop(writer);
    let mut failed = [0_u8; 2];
    // SAFETY: two bytes are read into a buffer of two. The end of the pipe
    // comes with the exec, which closes the child's copy.
    let count = unsafe { libc::read(reader.as_raw_fd(), failed.as_mut_ptr().cast(), 2) };
    if count == 0 {
        return Ok((pid, launched.noted()));
    }
    // SAFETY: the child is ours and has not been waited for.
    unsafe { libc::waitpid(pid, ptr::null_mut(), 0) };
    let step = STEPS.get(usize::from(failed[0])).copied().unwrap_or("?");
    Err(Error::Step(
        step,
        io::Error::from_raw_os_error(i32::from(failed[1])),
    ))
}

/// Makes a pipe whose ends do not survive an exec: (reader, writer).
pub(super) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the kernel fills in two descriptors, owned here and once.
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

fn pointers(words: &[CString]) -> Vec<*const libc::c_char> {
    let end = std::iter::once(ptr::null());
    words.iter().map(|word| word.as_ptr()).chain(end).collect()
}

type Step = std::result::Result<std::convert::Infallible, (u8, io::Error)>;

fn become_init(
    plan: &Plan,
    argv: &[*const libc::c_char],
    env: &[*const libc::c_char],
    launched: &Moment,
) -> Step {
    // The descriptors come first in fact: a terminal must be 0 before TIOCSCTTY.
    descriptors(plan).map_err(|e| (5, e))?;
    session(plan).map_err(|e| (0, e))?;
    cgroups(plan).map_err(|e| (1, e))?;
    mounts(plan).map_err(|e| (2, e))?;
    root(plan).map_err(|e| (3, e))?;
    limits(plan).map_err(|e| (4, e))?;
    // SAFETY: plain system calls on strings that outlive them.
    unsafe {
        check(libc::chdir(plan.directory.as_ptr())).map_err(|e| (6, e))?;
        if plan.without_cap_kill {
            let cap_kill: libc::c_ulong = 5;
            check(libc::prctl(libc::PR_CAPBSET_DROP, cap_kill, 0, 0, 0)).map_err(|e| (7, e))?;
        }
    }
    identity(plan).map_err(|e| (8, e))?;
    dispositions(plan).map_err(|e| (9, e))?;
    mask(plan).map_err(|e| (10, e))?;
    if let Some(program) = &plan.filter {
        filter::install(program).map_err(|e| (11, e))?;
    }
    launched.note();
    // SAFETY: both tables end in a null pointer.
    unsafe { libc::execve(plan.file.as_ptr(), argv.as_ptr(), env.as_ptr()) };
    Err((12, io::Error::last_os_error()))
}

fn check(result: i32) -> io::Result<()> {
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn descriptors(plan: &Plan) -> io::Result<()> {
    // Out of the way first, since a source may be somebody else's target.
    const ASIDE: RawFd = 700;
    // SAFETY: plain system calls on numbers.
    unsafe {
        // What the test process itself inherited without that flag must not be
        // taken for something a test has passed on.
        let (first, last, flag) = (3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
        libc::syscall(libc::SYS_close_range, first, last, flag);
        for (index, (from, _)) in (ASIDE..).zip(&plan.descriptors) {
            check(libc::dup3(*from, index, libc::O_CLOEXEC))?;
        }
        for (index, (_, to)) in (ASIDE..).zip(&plan.descriptors) {
            check(libc::dup2(index, *to))?;
        }
        for fd in &plan.close {
            libc::close(*fd);
        }
    }
    Ok(())
}

fn session(plan: &Plan) -> io::Result<()> {
    let Some(terminal) = plan.session else {
        return Ok(());
    };
    // SAFETY: plain system calls.
    unsafe {
        check(libc::setsid())?;
        if terminal {
            check(libc::ioctl(0, libc::TIOCSCTTY, 0))?;
        }
    }
    Ok(())
}

fn cgroups(plan: &Plan) -> io::Result<()> {
    for file in &plan.cgroups {
        // SAFETY: "0" stands for the writer itself, in both cgroup versions.
        let count = unsafe { libc::write(file.as_raw_fd(), c"0".as_ptr().cast(), 1) };
        check(i32::try_from(count).unwrap_or(-1))?;
    }
    Ok(())
}

fn mounts(plan: &Plan) -> io::Result<()> {
    if plan.mounts.is_empty() {
        return Ok(());
    }
    let none = ptr::null();
    let mount =
        |from: *const libc::c_char, to: *const libc::c_char, kind: *const libc::c_char, flags| {
            // SAFETY: all strings end in NUL and outlive the call.
            check(unsafe { libc::mount(from, to, kind, flags, ptr::null()) })
        };
    mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE)?;
    for wanted in &plan.mounts {
        match wanted {
            Mount::Bind(from, to) => {
                mount(
                    from.as_ptr(),
                    to.as_ptr(),
                    none,
                    libc::MS_BIND | libc::MS_REC,
                )?;
            }
            Mount::Proc => {
                let proc = c"proc".as_ptr();
                mount(proc, c"/proc".as_ptr(), proc, 0)?;
            }
            Mount::Empty(at) => {
                let tmpfs = c"tmpfs".as_ptr();
                mount(tmpfs, at.as_ptr(), tmpfs, 0)?;
            }
            Mount::Disk(at, size) => {
                let (tmpfs, options) = (c"tmpfs".as_ptr(), size.as_ptr().cast());
                // SAFETY: all strings end in NUL and outlive the call.
                check(unsafe { libc::mount(tmpfs, at.as_ptr(), tmpfs, 0, options) })?;
            }
            Mount::ReadOnlyRoot => {
                let flags = libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY;
                mount(none, c"/".as_ptr(), none, flags)?;
            }
        }
    }
    Ok(())
}

fn root(plan: &Plan) -> io::Result<()> {
    let Some(root) = &plan.root else {
        return Ok(());
    };
    // SAFETY: the string ends in NUL and outlives the call.
    check(unsafe { libc::chroot(root.as_ptr()) })
}

fn limits(plan: &Plan) -> io::Result<()> {
    for (resource, value) in &plan.limits {
        let limit = libc::rlimit {
            rlim_cur: *value,
            rlim_max: *value,
        };
        // SAFETY: `limit` outlives the call.
        check(unsafe { libc::setrlimit(*resource, &raw const limit) })?;
    }
    Ok(())
}

fn identity(plan: &Plan) -> io::Result<()> {
    // SAFETY: plain system calls. The raw forms, since those of the C library
    // would try to tell the other threads, of which the child has none.
    unsafe {
        if let Some(id) = plan.uid {
            let call = |number, a: u32, b: u32, c: u32| {
                check(i32::try_from(libc::syscall(number, a, b, c)).unwrap_or(-1))
            };
            check(i32::try_from(libc::syscall(libc::SYS_setgroups, 0, 0)).unwrap_or(-1))?;
            call(libc::SYS_setresgid, id, id, id)?;
            call(libc::SYS_setresuid, id, id, id)?;
        }
        // Should the test process die, so does the namespace. Asked for last: a
        // change of identity would withdraw it.
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0))
    }
}

fn dispositions(plan: &Plan) -> io::Result<()> {
    for signal in 1..=64 {
        // The C library keeps 32 and 33 for itself; nobody has touched them.
        if [libc::SIGKILL, libc::SIGSTOP, 32, 33].contains(&signal) {
            continue;
        }
        let ignored = plan.ignored.contains(&signal);
        let action = if ignored {
            libc::SIG_IGN
        } else {
            libc::SIG_DFL
        };
        // SAFETY: sets a default or ignored disposition, no handler.
        if unsafe { libc::signal(signal, action) } == libc::SIG_ERR {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

fn mask(plan: &Plan) -> io::Result<()> {
    let bits = |signals: &[i32]| signals.iter().fold(0_u64, |set, n| set | 1 << (n - 1));
    let set = |mask: u64| {
        let how = libc::SIG_SETMASK;
        // SAFETY: an eight-byte mask, as the size says. The raw call, since the
        // C library leaves out its own signals.
        let result = unsafe {
            libc::syscall(
                libc::SYS_rt_sigprocmask,
                how,
                &raw const mask,
                ptr::null::<u64>(),
                8,
            )
        };
        check(i32::try_from(result).unwrap_or(-1))
    };
    set(bits(&plan.blocked))?;
    for signal in &plan.pending {
        // SAFETY: plain system calls; the signal is blocked, so it stays pending.
        check(unsafe { libc::kill(libc::getpid(), *signal) })?;
    }
    Ok(())
}
