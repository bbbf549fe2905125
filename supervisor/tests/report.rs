//! The report: one line of valid JSON, small, with the fields its schema knows.

#![allow(clippy::unwrap_used, reason = "a test may")]

use podcradle_init::reap::End;
use podcradle_init::report::{MOST, Report};
use podcradle_init::step::{Drain, State, Stop};
use serde_json::{Value, json};

fn report(state: &State, message: &[u8], host: &[u8]) -> Value {
    let report = Report {
        exit_code: 143,
        state,
        message,
        oom_kills: Some(2),
        uptime_ms: 5_321,
        host,
    };
    let line = report.line();
    let text = std::str::from_utf8(line.as_bytes()).unwrap();
    assert!(
        text.ends_with("}\n") && text.len() <= 1_024 && text.len() < MOST,
        "{text}"
    );
    assert!(!line.is_full());
    serde_json::from_str(text).unwrap()
}

fn full() -> State {
    let mut state = State::new();
    state.end = Some(End::Signal {
        signal: 15,
        core: true,
    });
    state.stop = Some(Stop {
        signal: 15,
        pid: i32::MAX,
        uid: u32::MAX,
    });
    state.drain = Some(Drain {
        left: u32::MAX,
        killed: u32::MAX,
        expired: true,
    });
    state.orphans = u64::MAX;
    state.restarts = u32::MAX;
    state.grace_expired = true;
    state.unkillable = true;
    state
}

#[test]
fn a_full_report_reads_as_written_and_its_schema_knows_every_field() {
    let read = report(&full(), b"", b"host");
    let expected = json!({
        "v": 1, "exitCode": 143, "end": {"kind": "signal", "signal": 15, "core": true},
        "stop": {"signal": 15, "pid": i32::MAX, "uid": u32::MAX},
        "graceExpired": true, "unkillable": true,
        "drain": {"left": u32::MAX, "killed": u32::MAX, "expired": true},
        "oomKills": 2, "restarts": u32::MAX, "orphans": u64::MAX, "uptimeMs": 5321, "host": "host",
    });
    assert_eq!(read, expected);
    let schema: Value = serde_json::from_str(include_str!("../report.schema.json")).unwrap();
    for name in read.as_object().unwrap().keys() {
        assert!(schema["properties"].get(name).is_some(), "{name}");
    }
    let kinds = schema["properties"]["end"]["oneOf"].as_array().unwrap();
    assert_eq!(kinds.len(), 5);
}

#[test]
fn every_end_has_its_kind() {
    let exec = End::Exec {
        errno: 2,
        code: 127,
    };
    for (end, between, expected) in [
        (None, false, json!({"kind": "setup", "message": "why"})),
        (
            Some(End::Exit { code: 7 }),
            false,
            json!({"kind": "exit", "code": 7}),
        ),
        (
            Some(exec),
            false,
            json!({"kind": "exec", "errno": 2, "message": "why"}),
        ),
        (
            Some(End::Exit { code: 7 }),
            true,
            json!({"kind": "backoff", "lastCode": 7}),
        ),
        (
            Some(End::Signal {
                signal: 9,
                core: false,
            }),
            true,
            json!({"kind": "backoff", "lastCode": 137, "lastSignal": 9}),
        ),
    ] {
        let mut state = State::new();
        state.end = end;
        state.stopped_between = between;
        let read = report(&state, b"why", b"x");
        assert_eq!(read["end"], expected);
        assert!(read.get("stop").is_none() && read.get("drain").is_none());
    }
}

#[test]
fn no_text_makes_it_long_or_invalid() {
    for byte in [b'x', b'"', b'\x01', 0xff] {
        let text = vec![byte; 4_000];
        let mut state = full();
        state.end = Some(End::Exec {
            errno: 2,
            code: 127,
        });
        report(&state, &text, &text);
    }
}
