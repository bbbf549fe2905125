//! Any bytes, cut into words at NUL, parse to a plan or to one line, under every name.
#![no_main]

use libfuzzer_sys::fuzz_target;
use podcradle_init::args::Plan;
use podcradle_init::flags::Persona;
use podcradle_init::sys::memory::Entry;
use std::ffi::CString;

fuzz_target!(|data: &[u8]| {
    let words: Vec<CString> = data
        .split(|byte| *byte == 0)
        .map(|word| CString::new(word).expect("cut at NUL"))
        .collect();
    let argv: Vec<Entry<'_>> = words.iter().map(|word| Entry::new(word)).collect();
    for persona in [
        Persona::Podcradle,
        Persona::Tini,
        Persona::Catatonit,
        Persona::DumbInit,
    ] {
        let mut plan = Plan::new(persona, &[], data.len().is_multiple_of(2));
        match plan.parse(&argv) {
            Ok(()) => {
                assert!(plan.host.len() < argv.len().max(1));
                for secret in plan.secrets.iter().flatten() {
                    assert!(!secret.name().is_empty() && !secret.path().is_empty());
                }
            }
            Err(line) => assert!(!line.as_bytes().is_empty()),
        }
    }
});
