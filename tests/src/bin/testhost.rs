//! The hosts that the supervisor's tests need and no shell can play.
//!
//! `testhost COMMAND ARG…`; what each command does is said at its function (`clock CODE`
//! prints the monotonic clock in nanoseconds and exits).
//! It runs natively also where the supervisor under test is emulated.

use std::env;
use std::fs;
use std::io::{self, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt;
use std::process::{self, Command, ExitCode};
use std::ptr;
use std::thread;

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["die", signal] => die(number(signal)),
        ["abort"] => process::abort(),
        ["listen", label, until, code] => listen(label, number(until), number(code)),
        ["listen-elsewhere", label, until, code] => {
            elsewhere().and_then(|()| listen(label, number(until), number(code)))
        }
        ["orphans", count, kind] => orphans(number(count), kind),
        ["race", count, code] => race(number(count), number(code)),
        ["traced", code] => traced(number(code)),
        ["traced-orphan", code] => traced_orphan(number(code)),
        ["vfork"] => vfork(),
        ["descriptors"] => descriptors(),
        ["as-user", id, command, args @ ..] => as_user(number(id), command, args),
        ["hold", name, code] => hold(name, number(code)),
        ["eat"] => eat(),
        ["peek", pid] => peek(pid),
        ["clock", code] => {
            say(&podcradle_tests::pidns::monotonic().to_string()).map(|()| number(code))
        }
        _ => {
            eprintln!("testhost: no such command: {words:?}");
            return ExitCode::from(99);
        }
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("testhost: {words:?}: {error}");
            ExitCode::from(99)
        }
    }
}

fn number<T: std::str::FromStr + Default>(word: &str) -> T {
    word.parse().unwrap_or_default()
}

fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

fn checked(result: i32) -> io::Result<i32> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

/// Forks; the process is single-threaded, so the child may do anything.
fn fork() -> io::Result<i32> {
    // SAFETY: no other thread exists.
    checked(unsafe { libc::fork() })
}

fn leave(code: i32) -> ! {
    // SAFETY: ends the process without running what the parent registered.
    unsafe { libc::_exit(code) }
}

fn reap(pid: i32) -> io::Result<()> {
    // SAFETY: the status is not asked for.
    checked(unsafe { libc::waitpid(pid, ptr::null_mut(), 0) })?;
    Ok(())
}

/// Sets the mask by the raw call: the C library leaves out 32 and 33.
fn mask(bits: u64) -> io::Result<()> {
    let how = libc::SIG_SETMASK;
    let old = ptr::null::<u64>();
    // SAFETY: an eight-byte mask, as the size says.
    let result = unsafe { libc::syscall(libc::SYS_rt_sigprocmask, how, &raw const bits, old, 8) };
    checked(i32::try_from(result).unwrap_or(-1)).map(|_| ())
}

/// Dies by the signal's default action.
fn die(signal: i32) -> io::Result<u8> {
    mask(0)?;
    if ![libc::SIGKILL, 32, 33].contains(&signal) {
        // SAFETY: sets the default disposition.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: plain system calls.
    unsafe {
        checked(libc::kill(libc::getpid(), signal))?;
        libc::pause();
    }
    Ok(98)
}

/// Prints "LABEL N" for every signal N that comes, and exits after UNTIL.
fn listen(label: &str, until: i32, code: u8) -> io::Result<u8> {
    mask(u64::MAX)?;
    say(&format!("{label} ready"))?;
    loop {
        let all = u64::MAX;
        let (info, time) = (ptr::null::<u8>(), ptr::null::<u8>());
        let wanted = &raw const all;
        // SAFETY: an eight-byte set, as the size says; nothing is written back.
        let signal = unsafe { libc::syscall(libc::SYS_rt_sigtimedwait, wanted, info, time, 8) };
        let Ok(signal @ 1..) = i32::try_from(signal) else {
            let error = io::Error::last_os_error();
            if error.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return Err(error);
        };
        say(&format!("{label} {signal}"))?;
        if signal == until {
            return Ok(code);
        }
    }
}

/// Leaves its process group for that of a child, which stays with it.
fn elsewhere() -> io::Result<()> {
    let parent = process::id();
    let child = fork()?;
    if child == 0 {
        // SAFETY: plain system calls; it ends with its parent, however that ends.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
            while u32::try_from(libc::getppid()) == Ok(parent) {
                libc::pause();
            }
        }
        leave(0);
    }
    // SAFETY: plain system calls on our own child and ourselves.
    unsafe {
        checked(libc::setpgid(child, child))?;
        checked(libc::setpgid(0, child))?;
    }
    Ok(())
}

/// Makes COUNT orphans as fast as it can, by double forks in batches. Of KIND:
/// `after` outlive their parent, `before` are dead when it dies, `mixed` are
/// both, `realtime` are killed by a real-time signal.
fn orphans(count: u32, kind: &str) -> io::Result<u8> {
    const BATCH: u32 = 50;
    let mut made = 0;
    let mut round = 0;
    while made < count {
        let batch = BATCH.min(count - made);
        let early = kind == "before" || (kind == "mixed" && round % 2 == 0);
        let middle = fork()?;
        if middle == 0 {
            batch_of(batch, early, kind == "realtime");
        }
        reap(middle)?;
        made += batch;
        round += 1;
    }
    say(&format!("made {made}"))?;
    let mut rest = Vec::new();
    io::stdin().read_to_end(&mut rest)?;
    Ok(42)
}

fn batch_of(count: u32, early: bool, realtime: bool) -> ! {
    for _ in 0..count {
        match fork() {
            Ok(0) if realtime => {
                let _ = die(40);
                leave(97);
            }
            Ok(0) => leave(0),
            Ok(_) => {}
            Err(_) => leave(96),
        }
    }
    if early {
        // Until each child is a zombie of ours, without taking any of them.
        for _ in 0..count {
            // SAFETY: WNOWAIT leaves the zombie; `info` is only written.
            unsafe {
                let mut info: libc::siginfo_t = std::mem::zeroed();
                libc::waitid(libc::P_ALL, 0, &raw mut info, libc::WEXITED | libc::WNOWAIT);
            }
        }
    }
    leave(0)
}

/// COUNT orphans and the host all end when the standard input does.
fn race(count: u32, code: u8) -> io::Result<u8> {
    let middle = fork()?;
    if middle == 0 {
        for _ in 0..count {
            if matches!(fork(), Ok(0)) {
                let mut byte = [0_u8];
                let _ = io::stdin().read(&mut byte);
                leave(0);
            }
        }
        leave(0);
    }
    reap(middle)?;
    say("ready")?;
    let mut byte = [0_u8];
    // Raw, since a signal that arrives here must not change the outcome.
    while matches!(io::stdin().read(&mut byte), Err(e) if e.kind() == io::ErrorKind::Interrupted) {}
    Ok(code)
}

extern "C" fn handled(_: i32) {
    // SAFETY: write is async-signal-safe.
    unsafe { libc::write(1, c"handled\n".as_ptr().cast(), 8) };
}

/// Makes its parent its tracer, as some programs do against debuggers, then
/// handles a signal and exits.
fn traced(code: u8) -> io::Result<u8> {
    let handler: extern "C" fn(i32) = handled;
    // SAFETY: the handler only writes; the rest are plain system calls.
    unsafe {
        libc::signal(libc::SIGUSR1, handler as libc::sighandler_t);
        let result = libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
        checked(i32::try_from(result).unwrap_or(-1))?;
        checked(libc::kill(libc::getpid(), libc::SIGUSR1))?;
    }
    Ok(code)
}

/// The same by an orphan, after init has adopted it; the host waits for its end.
fn traced_orphan(code: u8) -> io::Result<u8> {
    let (mut reader, writer) = io::pipe()?;
    let middle = fork()?;
    if middle == 0 {
        // SAFETY: plain system calls.
        let parent = unsafe { libc::getpid() };
        if fork()? == 0 {
            // SAFETY: as above.
            while unsafe { libc::getppid() } == parent {
                thread::yield_now();
            }
            let code = traced(0).unwrap_or(95);
            leave(i32::from(code));
        }
        leave(0);
    }
    drop(writer);
    reap(middle)?;
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest)?;
    Ok(code)
}

/// Leaves behind a process in uninterruptible sleep: the parent of a vfork
/// whose child takes its time.
fn vfork() -> io::Result<u8> {
    if fork()? == 0 {
        let flags = libc::c_long::from(libc::CLONE_VFORK | libc::SIGCHLD);
        // SAFETY: without CLONE_VM the child has memory of its own.
        let child = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
        if child == 0 {
            // SAFETY: plain system calls; the child must not end of TERM.
            unsafe {
                libc::signal(libc::SIGTERM, libc::SIG_IGN);
                loop {
                    libc::pause();
                }
            }
        }
        leave(0);
    }
    say("left")?;
    let mut byte = [0_u8];
    io::stdin().read_exact(&mut byte).ok();
    Ok(0)
}

/// Prints the numbers of the open descriptors in one line.
fn descriptors() -> io::Result<u8> {
    // SAFETY: asks about numbers only.
    let open = |fd: &i32| unsafe { libc::fcntl(*fd, libc::F_GETFD) } >= 0;
    let open: Vec<String> = (0..1024).filter(open).map(|fd| fd.to_string()).collect();
    say(&open.join(" "))?;
    Ok(0)
}

/// Becomes another user, then runs a command: a host init may not signal.
fn as_user(id: u32, command: &str, args: &[&str]) -> io::Result<u8> {
    // SAFETY: plain system calls of a single-threaded process.
    unsafe {
        checked(libc::setgroups(0, ptr::null()))?;
        checked(libc::setresgid(id, id, id))?;
        checked(libc::setresuid(id, id, id))?;
    }
    Err(Command::new(command).args(args).exec())
}

/// Binds NAME, leaves a child of another session that holds on to it, and
/// exits; 50 when somebody has it already.
fn hold(name: &str, code: u8) -> io::Result<u8> {
    let address = SocketAddr::from_abstract_name(name)?;
    let listener = match UnixListener::bind_addr(&address) {
        Ok(listener) => listener,
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            say("in use")?;
            return Ok(50);
        }
        Err(error) => return Err(error),
    };
    let (mut reader, writer) = io::pipe()?;
    if fork()? == 0 {
        // SAFETY: a plain system call.
        unsafe { libc::setsid() };
        drop(writer);
        let _ = listener.accept();
        leave(0);
    }
    drop(writer);
    // The child has its session once its end of the pipe is shut.
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest)?;
    say("bound")?;
    Ok(code)
}

/// Takes memory until somebody objects.
fn eat() -> io::Result<u8> {
    let mut held = Vec::new();
    for round in 0..4096_u32 {
        // Written to, page by page, or the kernel would only promise it.
        let mut chunk = vec![0_u8; 1 << 20];
        chunk.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        held.push(chunk);
        if round == 4095 {
            say("nobody objected")?;
        }
    }
    Ok(94)
}

/// Says whether this process may read another's environment.
fn peek(pid: &str) -> io::Result<u8> {
    match fs::read(format!("/proc/{pid}/environ")) {
        Ok(bytes) => say(&format!("read {} bytes", bytes.len()))?,
        Err(error) => say(&format!("refused: {:?}", error.kind()))?,
    }
    Ok(0)
}
