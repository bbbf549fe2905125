//! Any environment is read without harm, and a variable is found exactly where it stands.
#![no_main]

use libfuzzer_sys::fuzz_target;
use podcradle_init::args::{Plan, variable};
use podcradle_init::flags::Persona;
use podcradle_init::sys::memory::Entry;
use std::ffi::CString;

fuzz_target!(|data: &[u8]| {
    let mut words: Vec<CString> = data
        .split(|byte| *byte == 0)
        .map(|word| CString::new(word).expect("cut at NUL"))
        .collect();
    for name in ["TINI_VERBOSITY", "DUMB_INIT_SETSID"] {
        if let Some(first) = words.first() {
            let value = first.to_bytes().to_vec();
            words.push(CString::new([name.as_bytes(), b"=", &value].concat()).expect("no NUL"));
        }
    }
    let env: Vec<Entry<'_>> = words.iter().map(|word| Entry::new(word)).collect();
    let name = words.first().map_or(&b""[..], |word| word.to_bytes());
    let found = variable(&env, name).map(|value| value.to_bytes());
    let prefix = [name, b"="].concat();
    let expected = words
        .iter()
        .find_map(|word| word.to_bytes().strip_prefix(&prefix[..]));
    assert_eq!(found, expected);
    let host = [c"init", c"host"].map(Entry::new);
    for persona in [
        Persona::Podcradle,
        Persona::Tini,
        Persona::Catatonit,
        Persona::DumbInit,
    ] {
        let mut plan = Plan::new(persona, &env, true);
        let _ = plan.parse(&host);
    }
});
