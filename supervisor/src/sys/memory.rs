//! Memory: C's argument tables, the one mapping per start, and the page shared with a child.

use super::Result;
use core::cell::Cell;
use core::ffi::{CStr, c_char};
use core::marker::PhantomData;
use core::sync::atomic::{AtomicI32, AtomicU8, Ordering};
use nix::errno::Errno;

/// One entry of a C string table: a string, or the null that ends it.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Entry<'a>(*const c_char, PhantomData<&'a CStr>);

impl<'a> Entry<'a> {
    /// The null that ends a table.
    pub const END: Entry<'static> = Entry(core::ptr::null(), PhantomData);

    /// An entry that points to `text`.
    pub fn new(text: &'a CStr) -> Entry<'a> {
        Entry(text.as_ptr(), PhantomData)
    }

    /// The string, or `None` for the null.
    pub fn get(self) -> Option<&'a CStr> {
        // SAFETY: a non-null entry was made from a CStr of lifetime 'a, or comes from the
        // table the kernel gave to main, which lives as long as the process.
        (!self.0.is_null()).then(|| unsafe { CStr::from_ptr(self.0) })
    }
}

/// The table of `count` strings C's `main` was given.
///
/// # Safety
/// `table` must point to `count` pointers to NUL-terminated strings that live, unchanged,
/// as long as the process.
pub unsafe fn table_from_main(
    count: i32,
    table: *const *const c_char,
) -> &'static [Entry<'static>] {
    let count = usize::try_from(count).unwrap_or(0);
    if table.is_null() {
        return &[];
    }
    // SAFETY: the caller vouches for the memory, and Entry has the layout of a pointer.
    unsafe { core::slice::from_raw_parts(table.cast(), count) }
}

/// As `table_from_main`, for a table that ends with a null.
///
/// # Safety
/// As for `table_from_main`, and a null must end the table.
pub unsafe fn table_until_null(table: *const *const c_char) -> &'static [Entry<'static>] {
    let mut count = 0_i32;
    if !table.is_null() {
        // SAFETY: every entry up to and including the null is readable.
        while !unsafe { *table.wrapping_add(count.unsigned_abs() as usize) }.is_null() {
            count = count.wrapping_add(1);
        }
    }
    // SAFETY: just counted; the rest is the caller's promise.
    unsafe { table_from_main(count, table) }
}

/// Replaces this process by the program at `path`; comes back only on failure.
pub fn execute(path: &CStr, argv: &[Entry<'_>], envp: &[Entry<'_>]) -> Errno {
    let ends = |table: &[Entry<'_>]| table.last().is_some_and(|last| last.0.is_null());
    if !ends(argv) || !ends(envp) {
        return Errno::EINVAL;
    }
    // SAFETY: both tables end with a null (just checked), and every other entry points to a
    // NUL-terminated string that outlives the call.
    unsafe { libc::execve(path.as_ptr(), argv.as_ptr().cast(), envp.as_ptr().cast()) };
    Errno::last()
}

/// One private anonymous mapping that is handed out piece by piece and unmapped when dropped.
///
/// Pages that are not touched cost nothing.
pub struct Arena {
    base: *mut u8,
    size: usize,
    used: Cell<usize>,
}

impl Arena {
    /// Maps `size` bytes.
    pub fn new(size: usize) -> Result<Arena> {
        map(size, libc::MAP_PRIVATE).map(|base| Arena {
            base,
            size,
            used: Cell::new(0),
        })
    }

    /// Hands out `count` zero bytes.
    #[allow(clippy::mut_from_ref, reason = "each piece is handed out once")]
    pub fn bytes(&self, count: usize) -> Result<&mut [u8]> {
        let at = self.used.get();
        let end = at.checked_add(count).filter(|end| *end <= self.size);
        let end = end.ok_or(Errno::ENOMEM)?;
        self.used.set(end);
        // SAFETY: at..end lies inside the mapping and is handed out once, since `used` only
        // grows; the slice borrows the arena, so the mapping outlives it.
        Ok(unsafe { core::slice::from_raw_parts_mut(self.base.wrapping_add(at), count) })
    }

    /// Hands out a table of `count` nulls.
    #[allow(clippy::mut_from_ref, reason = "as for bytes")]
    pub fn table(&self, count: usize) -> Result<&mut [Entry<'_>]> {
        const SIZE: usize = size_of::<Entry<'_>>();
        let aligned = self.used.get().wrapping_add(SIZE - 1) & !(SIZE - 1);
        self.used.set(aligned);
        let size = count.checked_mul(SIZE).ok_or(Errno::ENOMEM)?;
        let bytes = self.bytes(size)?;
        // SAFETY: the bytes are aligned (the mapping is page-aligned and `aligned` a multiple
        // of the size), count * SIZE long, ours alone, and zero, which is a null entry.
        Ok(unsafe { core::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), count) })
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and every slice of it borrowed self.
        unsafe { libc::munmap(self.base.cast(), self.size) };
    }
}

/// How long a name in an `ExecNote` may be.
pub const NOTE_BYTES: usize = 200;

/// What a child leaves behind when the host could not be executed.
///
/// It lies in a page shared with the child, so the supervisor neither waits on a pipe nor
/// keeps one: it looks here after the child has ended. Untouched, the page costs nothing.
#[repr(C)]
pub struct ExecNote {
    errno: AtomicI32,
    kind: AtomicU8,
    name: [AtomicU8; NOTE_BYTES],
}

impl ExecNote {
    /// Maps a fresh, empty note, which stays for the life of the process.
    #[allow(clippy::cast_ptr_alignment, reason = "a mapping starts at a page")]
    pub fn new() -> Result<&'static ExecNote> {
        let base = map(size_of::<ExecNote>(), libc::MAP_SHARED)?;
        // SAFETY: the mapping is page-aligned, large enough, zero (valid for atomics), never
        // unmapped, and only atomics are in it, so sharing it with a child is no data race.
        Ok(unsafe { &*base.cast::<ExecNote>() })
    }

    /// Leaves an error with the name of what was at fault.
    pub fn leave(&self, errno: i32, kind: u8, name: &[u8]) {
        for (slot, byte) in self
            .name
            .iter()
            .zip(name.iter().chain(core::iter::repeat(&0)))
        {
            slot.store(*byte, Ordering::Relaxed);
        }
        self.kind.store(kind, Ordering::Relaxed);
        self.errno.store(errno, Ordering::Release);
    }

    /// The error and kind left, and its name copied into `to`.
    pub fn read(&self, to: &mut [u8; NOTE_BYTES]) -> Option<(i32, u8)> {
        let errno = self.errno.load(Ordering::Acquire);
        for (slot, byte) in to.iter_mut().zip(self.name.iter()) {
            *slot = byte.load(Ordering::Relaxed);
        }
        (errno != 0).then(|| (errno, self.kind.load(Ordering::Relaxed)))
    }
}

fn map(size: usize, sharing: i32) -> Result<*mut u8> {
    // SAFETY: a fresh anonymous mapping touches no existing memory.
    let base = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            size,
            libc::PROT_READ | libc::PROT_WRITE,
            sharing | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return Err(Errno::last());
    }
    Ok(base.cast())
}

/// The path this program was started by, as the kernel noted it.
pub fn own_path() -> Option<&'static CStr> {
    // SAFETY: getauxval only reads the vector the kernel put on our stack.
    let address = unsafe { libc::getauxval(libc::AT_EXECFN) };
    let path = core::ptr::with_exposed_provenance::<c_char>(usize::try_from(address).ok()?);
    // SAFETY: AT_EXECFN is the address of a NUL-terminated string that lives as long as we do.
    (!path.is_null()).then(|| unsafe { CStr::from_ptr(path) })
}
