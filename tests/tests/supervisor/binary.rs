//! The binary itself: its size, that it needs nothing at run time, and that a
//! kernel with pages of 64 KiB can load it.

use std::fs;

use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Stop};
use podcradle_tests::pidns::{Arch, Subject};

crate::cases![
    it_is_as_small_as_promised,
    it_is_static,
    its_segments_are_aligned_for_large_pages,
];

const PT_LOAD: u64 = 1;
const PT_DYNAMIC: u64 = 2;
const PT_INTERP: u64 = 3;
const DT_NEEDED: u64 = 1;

fn it_is_as_small_as_promised(t: &Subject) -> Outcome {
    let limit = match t.arch {
        Arch::Amd64 => 65_536,
        Arch::Arm64 => 131_072,
    };
    let size = fs::metadata(&t.path)?.len();
    ensure!(size <= limit, "{size} bytes, at most {limit} are promised");
    Ok(())
}

fn it_is_static(t: &Subject) -> Outcome {
    let file = fs::read(&t.path)?;
    for segment in segments(&file)? {
        ensure!(segment.kind != PT_INTERP, "it asks for a dynamic loader");
        if segment.kind == PT_DYNAMIC {
            let entries = (0..segment.size / 16).map(|n| number(&file, segment.offset + 16 * n, 8));
            for tag in entries {
                ensure!(tag? != DT_NEEDED, "it asks for a shared library");
            }
        }
    }
    Ok(())
}

fn its_segments_are_aligned_for_large_pages(t: &Subject) -> Outcome {
    if t.arch == Arch::Amd64 {
        // Pages of an amd64 kernel have 4 KiB, always.
        return Ok(());
    }
    let file = fs::read(&t.path)?;
    for segment in segments(&file)?.iter().filter(|s| s.kind == PT_LOAD) {
        ensure!(
            segment.align >= 0x10000,
            "a segment is aligned to {:#x}",
            segment.align
        );
    }
    Ok(())
}

struct Segment {
    kind: u64,
    offset: u64,
    size: u64,
    align: u64,
}

/// The program headers of a 64-bit little-endian ELF file.
fn segments(file: &[u8]) -> Result<Vec<Segment>, Stop> {
    ensure!(
        file.starts_with(b"\x7fELF\x02\x01"),
        "not a 64-bit little-endian ELF file"
    );
    let table = number(file, 0x20, 8)?;
    let (size, count) = (number(file, 0x36, 2)?, number(file, 0x38, 2)?);
    (0..count)
        .map(|n| {
            let at = table + n * size;
            Ok(Segment {
                kind: number(file, at, 4)?,
                offset: number(file, at + 8, 8)?,
                size: number(file, at + 0x20, 8)?,
                align: number(file, at + 0x30, 8)?,
            })
        })
        .collect()
}

fn number(file: &[u8], at: u64, bytes: usize) -> Result<u64, Stop> {
    let at = usize::try_from(at)?;
    let part = file.get(at..at + bytes).ok_or("the file ends early")?;
    Ok(part
        .iter()
        .rev()
        .fold(0, |value, byte| value << 8 | u64::from(*byte)))
}
