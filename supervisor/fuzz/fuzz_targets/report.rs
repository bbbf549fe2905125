//! Any bytes for names and messages give one line of valid JSON within its limit.
#![no_main]

use libfuzzer_sys::fuzz_target;
use podcradle_init::report::Report;
use podcradle_init::step::State;

fuzz_target!(|data: &[u8]| {
    let (message, host) = data.split_at(data.len() / 2);
    let report = Report {
        exit_code: 125,
        state: &State::new(),
        message,
        oom_kills: None,
        uptime_ms: 0,
        host,
    };
    let line = report.line();
    assert!(line.as_bytes().len() <= 1024 && line.as_bytes().ends_with(b"}\n"));
    let read: serde_json::Value = serde_json::from_slice(line.as_bytes()).expect("JSON");
    assert!(read["host"].is_string());
});
