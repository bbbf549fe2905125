//! Every system call of the supervisor, one thin wrapper each: the only unsafe code.
//!
//! In: numbers and borrowed C strings. Out: numbers or an `Errno`.
//! Nothing here may allocate or panic: PID 1 must do neither. Signals go through
//! the raw `rt_sig*` calls, since musl's own leave 32 to 34 out of its sets, and
//! statuses stay raw numbers, since nix knows no real-time signals.

pub mod file;
pub mod memory;
pub mod terminal;

use core::mem::MaybeUninit;
use nix::errno::Errno;

/// What a system call gives.
pub type Result<T> = core::result::Result<T, Errno>;

/// Size of the kernel's signal mask in bytes, the same on every target of ours.
const MASK_BYTES: usize = 8;

/// A signal taken from the pending ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Its number.
    pub signal: i32,
    /// `si_code`: 0 or less when a process sent it, more when the kernel made it.
    pub code: i32,
    /// The sender's pid; 0 when the kernel sent it or the sender is outside our namespace.
    pub pid: i32,
    /// The sender's uid.
    pub uid: u32,
}

/// A child that changed state, as `waitpid` tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waited {
    /// The child.
    pub pid: i32,
    /// The raw status word.
    pub status: i32,
}

/// Which side of a fork we are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// In the supervisor, with the new child's pid.
    Parent(i32),
    /// In the child.
    Child,
}

/// Replaces the signal mask by `mask` and gives the old one; bit `n - 1` is signal `n`.
pub fn set_mask(mask: u64) -> Result<u64> {
    let mut old = 0_u64;
    // SAFETY: both pointers are to live u64 values, and the size given is theirs.
    Errno::result(unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const mask,
            &raw mut old,
            MASK_BYTES,
        )
    })
    .map(|_| old)
}

/// The signals that are pending for us and blocked.
pub fn pending() -> Result<u64> {
    let mut set = 0_u64;
    // SAFETY: the pointer is to a live u64, and the size given is its own.
    Errno::result(unsafe { libc::syscall(libc::SYS_rt_sigpending, &raw mut set, MASK_BYTES) })
        .map(|_| set)
}

/// Waits for one signal of `set`, at most `timeout` nanoseconds, for ever without one.
///
/// *Errors*: EAGAIN when the time is over, EINTR when we were stopped and continued.
pub fn take_signal(set: u64, timeout: Option<u64>) -> Result<Taken> {
    let wait = timeout.map(timespec);
    let wait_ptr = wait.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: set, info and the timespec (or null) are live for the call; the size is the set's.
    let signal = Errno::result(unsafe {
        libc::syscall(
            libc::SYS_rt_sigtimedwait,
            &raw const set,
            info.as_mut_ptr(),
            wait_ptr,
            MASK_BYTES,
        )
    })?;
    // SAFETY: zeroed bytes are a valid siginfo_t, and the kernel has filled it in.
    let info = unsafe { info.assume_init() };
    // SAFETY: for signals sent by a process these fields are set; for others they are read as
    // plain integers of the same memory, which is initialised either way.
    let (pid, uid) = unsafe { (info.si_pid(), info.si_uid()) };
    let by_process = info.si_code <= 0;
    Ok(Taken {
        signal: i32::try_from(signal).unwrap_or(0),
        code: info.si_code,
        pid: if by_process { pid } else { 0 },
        uid: if by_process { uid } else { 0 },
    })
}

/// Sends `signal` to `target`, with the meaning `kill(2)` gives to 0 and negative targets.
pub fn kill(target: i32, signal: i32) -> Result<()> {
    // SAFETY: no memory is involved.
    Errno::result(unsafe { libc::kill(target, signal) }).map(drop)
}

/// The kernel's `struct sigaction`: handler, flags, restorer, mask.
type KernelAction = [usize; 4];

/// Gives SIGCHLD its default disposition and tells whether it was ignored before.
pub fn default_sigchld() -> Result<bool> {
    sigchld(libc::SIG_DFL).map(|[old, ..]| old == libc::SIG_IGN)
}

/// Ignores SIGCHLD again, for a host whose starter did.
pub fn ignore_sigchld() {
    let _ = sigchld(libc::SIG_IGN);
}

fn sigchld(handler: usize) -> Result<KernelAction> {
    let new: KernelAction = [handler, 0, 0, 0];
    let mut old: KernelAction = [0; 4];
    // SAFETY: both arrays have the layout of the kernel's structure on our 64-bit targets and
    // are live for the call; the handler is SIG_DFL or SIG_IGN, so no code is installed.
    Errno::result(unsafe {
        libc::syscall(
            libc::SYS_rt_sigaction,
            libc::SIGCHLD,
            new.as_ptr(),
            old.as_mut_ptr(),
            MASK_BYTES,
        )
    })
    .map(|_| old)
}

/// Forks. Both sides go on with this thread alone.
///
/// The bare system call: what a C library does around it (locks, handlers of `atfork`) is
/// for threads and heaps, and weighs a kilobyte.
pub fn fork() -> Result<Side> {
    let flags = i64::from(libc::SIGCHLD);
    // SAFETY: the supervisor has one thread, no heap and no state in the C library that a
    // child could find half-changed; with no flags but the signal, clone is fork.
    let pid = Errno::result(unsafe {
        libc::syscall(libc::SYS_clone, flags, 0_i64, 0_i64, 0_i64, 0_i64)
    })?;
    match i32::try_from(pid) {
        Ok(pid) if pid > 0 => Ok(Side::Parent(pid)),
        _ => Ok(Side::Child),
    }
}

/// Lets whoever else can run do so first.
pub fn step_aside() {
    // SAFETY: no memory is involved.
    unsafe { libc::sched_yield() };
}

/// Takes one child that changed state, without waiting; `None` when there is none to take.
///
/// *Errors*: ECHILD when there is no child at all.
pub fn wait_any(stops_too: bool) -> Result<Option<Waited>> {
    let flags = libc::WNOHANG | if stops_too { libc::WUNTRACED } else { 0 };
    let mut status = 0;
    // SAFETY: status is live for the call.
    let pid = Errno::result(unsafe { libc::waitpid(-1, &raw mut status, flags) })?;
    Ok((pid > 0).then_some(Waited { pid, status }))
}

/// Whether the child `pid` has ended, leaving its status to be taken.
pub fn has_ended(pid: i32) -> bool {
    let Ok(id) = libc::id_t::try_from(pid) else {
        return false;
    };
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: info is live for the call, and zero bytes are a valid siginfo_t.
    unsafe {
        libc::waitid(libc::P_PID, id, info.as_mut_ptr(), flags) == 0
            && info.assume_init().si_pid() == pid
    }
}

/// Lets a traced child go on untraced, with `signal` (0: none) delivered to it.
///
/// *Errors*: ESRCH when it is not traced by us.
pub fn detach(pid: i32, signal: i32) -> Result<()> {
    let null = core::ptr::null_mut::<libc::c_void>();
    // SAFETY: PTRACE_DETACH reads no memory of ours; the last argument is a number.
    Errno::result(unsafe {
        libc::syscall(
            libc::SYS_ptrace,
            i64::from(libc::PTRACE_DETACH),
            i64::from(pid),
            null,
            i64::from(signal),
        )
    })
    .map(drop)
}

/// Our own pid.
pub fn getpid() -> i32 {
    nix::unistd::getpid().as_raw()
}

/// Our parent's pid; 0 when it is outside our namespace.
pub fn getppid() -> i32 {
    nix::unistd::getppid().as_raw()
}

/// Our process group.
pub fn getpgrp() -> i32 {
    nix::unistd::getpgrp().as_raw()
}

/// Moves `pid` (0: ourselves) into a process group of its own.
pub fn own_group(pid: i32) -> Result<()> {
    let pid = nix::unistd::Pid::from_raw(pid);
    nix::unistd::setpgid(pid, pid)
}

/// Starts a new terminal session.
pub fn setsid() -> Result<()> {
    nix::unistd::setsid().map(drop)
}

/// Makes orphaned descendants ours.
pub fn become_subreaper() -> Result<()> {
    nix::sys::prctl::set_child_subreaper(true)
}

/// Forbids gaining privileges by exec, for us and all our descendants.
pub fn no_new_privileges() -> Result<()> {
    nix::sys::prctl::set_no_new_privs()
}

/// Keeps processes of our own uid out of our memory and environment.
pub fn not_dumpable() -> Result<()> {
    nix::sys::prctl::set_dumpable(false)
}

/// Has the kernel send us `signal` when our parent dies.
pub fn parent_death_signal(signal: i32) -> Result<()> {
    // SAFETY: no memory is involved; all five arguments are given.
    Errno::result(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal, 0, 0, 0) }).map(drop)
}

/// Nanoseconds on the monotonic clock.
pub fn monotonic_nanos() -> u64 {
    clock_nanos(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds since 1970, for names that should not repeat.
pub fn wall_nanos() -> u64 {
    clock_nanos(libc::CLOCK_REALTIME)
}

fn clock_nanos(clock: libc::clockid_t) -> u64 {
    let mut now = timespec(0);
    // SAFETY: now is live for the call.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
    seconds.wrapping_mul(1_000_000_000).wrapping_add(nanos)
}

fn timespec(nanos: u64) -> libc::timespec {
    // SAFETY: all-zero bytes are a valid timespec (musl's has padding, hence no literal).
    let mut time: libc::timespec = unsafe { core::mem::zeroed() };
    time.tv_sec = i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX);
    time.tv_nsec = libc::c_long::try_from(nanos % 1_000_000_000).unwrap_or(0);
    time
}

/// Ends this process at once, running nothing.
pub fn exit(code: u8) -> ! {
    // SAFETY: _exit does not return and touches no memory.
    unsafe { libc::_exit(i32::from(code)) }
}
