//! Arguments and environment become a plan, or one line that names flag, value and remedy.

#![allow(clippy::unwrap_used, reason = "a test may")]

use podcradle_init::args::{Mode, Plan, variable};
use podcradle_init::flags::Persona;
use podcradle_init::policy::{MILLI, Suspend};
use podcradle_init::sys::memory::Entry;
use proptest::prelude::*;
use std::ffi::{CStr, CString};

/// Tables that live as long as the test.
fn table(words: &[&str]) -> &'static [Entry<'static>] {
    let words = words.iter().map(|word| CString::new(*word).unwrap());
    let entries: Vec<Entry<'static>> = words
        .map(|word| Entry::new(Box::leak(word.into_boxed_c_str())))
        .collect();
    entries.leak()
}

fn parse_with(name: &str, env: &[&str], words: &[&str]) -> Result<Plan<'static>, String> {
    let argv: Vec<&str> = [name].iter().chain(words).copied().collect();
    let mut plan = Plan::new(Persona::of(name.as_bytes()), table(env), false);
    let parsed = plan.parse(table(&argv));
    parsed
        .map(|()| plan)
        .map_err(|line| String::from_utf8_lossy(line.as_bytes()).into_owned())
}

fn parse(words: &[&str]) -> Result<Plan<'static>, String> {
    parse_with("podcradle-init", &[], words)
}

fn host(plan: &Plan<'_>) -> Vec<String> {
    let words = plan.host.iter().filter_map(|entry| entry.get());
    words
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}

#[test]
fn the_flags_of_a_pod_are_understood() {
    let plan = parse(&[
        "--grace",
        "20",
        "--drain",
        "5",
        "--close-fds",
        "--no-new-privs",
        "--env-from-file",
        "PODCRADLE_HOST_TOKEN=/run/podcradle/token/token",
        "--",
        "host",
        "--server",
        "x",
    ])
    .unwrap();
    assert_eq!(
        (plan.policy.grace, plan.policy.drain),
        (Some(20_000 * MILLI), 5_000 * MILLI)
    );
    assert!(plan.close_fds && plan.no_new_privs);
    let secret = plan.secrets[0].unwrap();
    assert_eq!(secret.name(), b"PODCRADLE_HOST_TOKEN");
    assert_eq!(secret.path(), c"/run/podcradle/token/token");
    assert_eq!(host(&plan), ["host", "--server", "x"]);
}

#[test]
fn options_end_at_the_host_or_at_two_dashes() {
    assert_eq!(
        host(&parse(&["sh", "-c", "exit"]).unwrap()),
        ["sh", "-c", "exit"]
    );
    assert_eq!(host(&parse(&["-v", "--", "-g"]).unwrap()), ["-g"]);
    assert_eq!(host(&parse(&["--", "--", "x"]).unwrap()), ["--", "x"]);
    assert_eq!(host(&parse(&["-"]).unwrap()), ["-"]);
}

#[test]
fn short_flags_cluster_and_take_their_value_from_either_place() {
    for words in [&["-vvge143", "x"][..], &["-vv", "-g", "-e", "143", "x"]] {
        let plan = parse(words).unwrap();
        assert!(plan.to_group && plan.policy.success.has(143) && !plan.policy.success.has(142));
        assert_eq!(plan.verbosity, 2);
    }
}

#[test]
fn long_flags_take_their_value_from_either_place() {
    for words in [
        &["--grace=1.5", "x"][..],
        &["--grace", "1.500", "x"],
        &["--grace", "1.50", "x"],
    ] {
        assert_eq!(parse(words).unwrap().policy.grace, Some(1_500 * MILLI));
    }
}

#[test]
fn bad_input_is_named_with_what_would_be_right() {
    for (words, said) in [
        (&["--"][..], "no HOST"),
        (&[], "no HOST"),
        (
            &["--drian", "3", "x"],
            "unknown flag --drian: did you mean --drain?",
        ),
        (&["--xyzzyx", "x"], "unknown flag --xyzzyx: see --help"),
        (&["-Q", "x"], "unknown flag -Q"),
        (&["--grace"], "--grace needs a number of seconds"),
        (
            &["--grace", "-1", "x"],
            "--grace: -1 is not a number of seconds from 0 to 31536000",
        ),
        (&["--grace", "31536001", "x"], "31536001 is not"),
        (&["--grace", "1.2345", "x"], "1.2345 is not"),
        (&["--grace=", "x"], "is not a number"),
        (&["-e", "256", "x"], "256 is not an exit code from 0 to 255"),
        (&["-e"], "-e needs an exit code"),
        (&["-p", "NOPE", "x"], "NOPE is not a signal name"),
        (&["--rewrite", "HUP", "x"], "HUP is not FROM:TO"),
        (&["--rewrite", "CHLD:TERM", "x"], "not SIGCHLD"),
        (&["--restart", "always", "x"], "always is not on-failure"),
        (&["--restart", "on-failure:", "x"], "is not on-failure"),
        (
            &["--keep-fd", "1024", "x"],
            "1024 is not a descriptor from 0 to 1023",
        ),
        (&["--env-from-file", "1A=/x", "x"], "1A=/x is not NAME=PATH"),
        (&["--env-from-file", "A=", "x"], "A= is not NAME=PATH"),
        (&["--prepare", "", "x"], "is not a directory"),
        (&["--copy-to", "/x", "x"], "--copy-to takes no HOST: x"),
        (
            &["--copy-to", "/x", "--prepare", "/y"],
            "--prepare cannot go with it",
        ),
        (&["-P", "x"], "--pause takes no HOST: x"),
        (&["--keep-fd", "5", "x"], "--keep-fd needs --close-fds"),
        (
            &["--no-restart", "0", "x"],
            "--no-restart needs --restart on-failure",
        ),
        (&["--close-fds=yes", "x"], "--close-fds takes no value"),
        (&["--single-child", "x"], "unknown flag --single-child"),
    ] {
        let line = parse(words)
            .err()
            .unwrap_or_else(|| panic!("{words:?} was taken"));
        assert!(line.contains(said), "{words:?}: {line}");
    }
    let many: Vec<String> = (0..17)
        .map(|n| format!("--env-from-file=A{n}=/x"))
        .collect();
    let words: Vec<&str> = many.iter().map(String::as_str).chain(["x"]).collect();
    assert!(parse(&words).err().unwrap().contains("more than 16"));
}

#[test]
fn a_secret_named_twice_is_the_later_one() {
    let plan = parse(&["--env-from-file=A=/1", "--env-from-file=A=/2", "x"]).unwrap();
    assert_eq!(
        plan.secrets
            .iter()
            .flatten()
            .map(podcradle_init::args::Secret::path)
            .collect::<Vec<&CStr>>(),
        [c"/2"]
    );
}

#[test]
fn prepare_alone_needs_no_host() {
    for words in [&["--prepare", "/w"][..], &["--prepare", "/w", "--"]] {
        let plan = parse(words).unwrap();
        assert_eq!((plan.mode, plan.prepare), (Mode::PrepareOnly, Some(c"/w")));
    }
    let plan = parse(&["--prepare", "/w", "--", "git", "clone"]).unwrap();
    assert_eq!((plan.mode, plan.prepare), (Mode::Run, Some(c"/w")));
}

#[test]
fn tinis_environment_counts_under_its_name_and_ours() {
    let env = [
        "TINI_SUBREAPER=",
        "TINI_KILL_PROCESS_GROUP=1",
        "TINI_VERBOSITY=3",
    ];
    for name in ["tini", "/sbin/docker-init", "podcradle-init"] {
        let base = name.rsplit('/').next().unwrap();
        let plan = parse_with(base, &env, &["x"]).unwrap();
        assert!(plan.subreaper && plan.to_group, "{name}");
        assert_eq!(plan.verbosity, 2, "{name}");
    }
    let plan = parse_with("catatonit", &env, &["x"]).unwrap();
    assert!(!plan.subreaper && !plan.to_group);
    assert!(
        parse_with("tini", &["TINI_VERBOSITY=x"], &["x"])
            .err()
            .unwrap()
            .contains("TINI_VERBOSITY=x")
    );
}

#[test]
fn dumb_init_has_a_session_and_a_group_unless_told_otherwise() {
    let plan = parse_with("dumb-init", &[], &["x"]).unwrap();
    assert!(plan.own_session && plan.to_group);
    assert_eq!(plan.policy.suspend, Suspend::OnSignal);
    assert_eq!([20, 21, 22].map(|n| plan.policy.rewrite.of(n)), [19; 3]);
    for (env, words) in [
        (&[][..], &["-c", "x"][..]),
        (&["DUMB_INIT_SETSID=0"], &["x"]),
        (&[], &["--single-child", "x"]),
    ] {
        let plan = parse_with("dumb-init", env, words).unwrap();
        assert!(!plan.own_session && !plan.to_group);
        assert_eq!(plan.policy.rewrite.of(20), 20);
    }
    let plan = parse_with("dumb-init", &[], &["-r", "15:3", "--rewrite=1:0", "x"]).unwrap();
    assert_eq!([15, 1].map(|n| plan.policy.rewrite.of(n)), [3, 0]);
}

#[test]
fn a_peer_refuses_the_short_flags_it_does_not_have() {
    for (name, flag) in [
        ("tini", "-c"),
        ("tini", "-P"),
        ("catatonit", "-s"),
        ("catatonit", "-v"),
        ("dumb-init", "-g"),
    ] {
        let line = parse_with(name, &[], &[flag, "x"])
            .err()
            .unwrap_or_else(|| panic!("{name} {flag}"));
        assert!(line.contains(flag), "{line}");
        assert_eq!(Persona::of(name.as_bytes()).own_error(), 1);
    }
}

/// Words of all kinds: whole flags with and without values, pieces of them, and any bytes.
fn any_word() -> impl Strategy<Value = CString> {
    let flags = "-{1,2}(grace|drain|rewrite|stop-signal|restart|no-restart|close-fds|keep-fd|\
                 prepare|copy-to|env-from-file|termination-log|pause|help|single-child)(=[ -~]{0,9})?";
    let bytes = prop::collection::vec(1..=255_u8, 0..12);
    prop_oneof![
        4 => flags.prop_map(String::into_bytes),
        3 => "-[a-zA-Z]{1,4}[0-9]{0,3}".prop_map(String::into_bytes),
        3 => "(on-failure:?)?[0-9.:A-Z=/-]{0,12}".prop_map(String::into_bytes),
        2 => bytes,
    ]
    .prop_map(|bytes| CString::new(bytes).unwrap())
}

fn any_persona() -> impl Strategy<Value = Persona> {
    prop::sample::select(vec![
        Persona::Podcradle,
        Persona::Tini,
        Persona::Catatonit,
        Persona::DumbInit,
    ])
}

fn entries(words: &[CString]) -> Vec<Entry<'_>> {
    words.iter().map(|word| Entry::new(word)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1_024,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Any words parse to a plan that holds together, or to one line, under every name.
    #[test]
    fn any_words_are_a_plan_or_one_line(
        persona in any_persona(),
        pid1 in any::<bool>(),
        words in prop::collection::vec(any_word(), 0..9),
    ) {
        let argv = entries(&words);
        let mut plan = Plan::new(persona, &[], pid1);
        match plan.parse(&argv) {
            Ok(()) => {
                prop_assert!(plan.host.len() < argv.len().max(1));
                prop_assert!(plan.mode != Mode::Run || !plan.host.is_empty());
                for secret in plan.secrets.iter().flatten() {
                    prop_assert!(!secret.name().is_empty() && !secret.path().is_empty());
                }
            }
            Err(line) => {
                let line = line.as_bytes();
                prop_assert!(!line.is_empty() && line.len() <= 320);
            }
        }
    }

    /// Any environment is read without harm, and a variable is found exactly where it stands.
    #[test]
    fn any_environment_is_read(
        persona in any_persona(),
        name in "[A-Z]{0,2}",
        words in prop::collection::vec("[A-Z]{0,2}=?[ -~]{0,6}", 0..9),
        level in "[0-9x]{0,4}",
    ) {
        let level = [format!("TINI_VERBOSITY={level}"), format!("DUMB_INIT_SETSID={level}")];
        let words = words.iter().chain(&level).map(|word| CString::new(word.as_str()).unwrap());
        let words: Vec<CString> = words.collect();
        let env = entries(&words);
        let prefix = format!("{name}=");
        let expected = words.iter().find_map(|word| word.to_str().unwrap().strip_prefix(&prefix));
        let found = variable(&env, name.as_bytes()).map(|value| value.to_str().unwrap());
        prop_assert_eq!(found, expected);
        let argv = [c"init", c"host"].map(Entry::new);
        let mut plan = Plan::new(persona, &env, true);
        match plan.parse(&argv) {
            Ok(()) => prop_assert_eq!(plan.host.len(), 1),
            Err(line) => prop_assert!(line.as_bytes().starts_with(b"TINI_VERBOSITY=")),
        }
    }
}
