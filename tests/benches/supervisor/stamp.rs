//! A host without any start-up of its own: its first instruction takes the
//! time. Compiled by the bench, alone, with no library at all.
//!
//! Without arguments it writes the time (CLOCK_MONOTONIC, eight bytes of
//! nanoseconds) and exits; with one it does so again for each signal it gets.
#![no_std]
#![no_main]

use core::arch::{asm, global_asm};

// The stack pointer is the only thing the kernel hands over: argc is there.
#[cfg(target_arch = "x86_64")]
global_asm!(".globl _start", "_start: mov rdi, rsp", "and rsp, -16", "call run");
#[cfg(target_arch = "aarch64")]
global_asm!(".globl _start", "_start: mov x0, sp", "bl run");

#[cfg(target_arch = "x86_64")]
mod number {
    pub const WRITE: usize = 1;
    pub const SIGPROCMASK: usize = 14;
    pub const EXIT: usize = 60;
    pub const SIGTIMEDWAIT: usize = 128;
    pub const CLOCK_GETTIME: usize = 228;
}
#[cfg(target_arch = "aarch64")]
mod number {
    pub const WRITE: usize = 64;
    pub const EXIT: usize = 93;
    pub const CLOCK_GETTIME: usize = 113;
    pub const SIGPROCMASK: usize = 135;
    pub const SIGTIMEDWAIT: usize = 137;
}

fn call(number: usize, a: usize, b: usize, c: usize, d: usize) -> isize {
    let result;
    // SAFETY: every caller passes pointers to live memory of the right size.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        asm!("syscall", inlateout("rax") number => result, in("rdi") a, in("rsi") b,
            in("rdx") c, in("r10") d, out("rcx") _, out("r11") _);
        #[cfg(target_arch = "aarch64")]
        asm!("svc 0", in("x8") number, inlateout("x0") a => result, in("x1") b,
            in("x2") c, in("x3") d);
    }
    result
}

fn stamp() {
    let mut time = [0_u64; 2];
    call(number::CLOCK_GETTIME, 1, time.as_mut_ptr() as usize, 0, 0);
    let nanoseconds = time[0].wrapping_mul(1_000_000_000).wrapping_add(time[1]);
    let at = (&raw const nanoseconds) as usize;
    call(number::WRITE, 1, at, 8, 0);
}

// SAFETY: the only symbol of that name; `_start` calls it and nobody else.
#[unsafe(no_mangle)]
extern "C" fn run(stack: *const usize) -> ! {
    let all = u64::MAX;
    let set = (&raw const all) as usize;
    // SAFETY: the kernel put argc there.
    let arguments = unsafe { *stack };
    if arguments > 1 {
        call(number::SIGPROCMASK, 2, set, 0, 8);
    }
    stamp();
    while arguments > 1 {
        if call(number::SIGTIMEDWAIT, set, 0, 0, 8) > 0 {
            stamp();
        }
    }
    loop {
        call(number::EXIT, 0, 0, 0, 0);
    }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}
