//! What the program prints without any cluster.

use std::process::{Command, Output};

fn podcradle(args: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_podcradle"));
    let variables = variables.iter().copied();
    command.args(args).env_clear().envs(variables);
    command.output().expect("the program runs")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

#[test]
fn the_schema_it_prints_is_the_published_one() {
    let printed = podcradle(&["schema"], &[]);
    assert!(printed.status.success());
    assert_eq!(
        text(&printed.stdout),
        include_str!("../sandbox.schema.json")
    );
}

#[test]
fn the_configuration_is_a_table_with_a_row_for_each_value() {
    let variables = [
        ("PODCRADLE_IMAGE", "i:1"),
        ("KUBECONFIG", "/a"),
        ("PODCRADLE_MEMORY_LIMT", "1Gi"),
    ];
    let args = ["config", "--network-policy", "--env", "API_KEY=hunter2"];
    let printed = podcradle(&args, &variables);
    let (table, said) = (text(&printed.stdout), text(&printed.stderr));
    assert_eq!(printed.status.code(), Some(0), "{said}");
    let rows: Vec<Vec<_>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    for row in [
        &["FIELD", "VALUE", "FROM"][..],
        &["kubeconfig", "/a", "variable", "KUBECONFIG"],
        &["image", "i:1", "variable", "PODCRADLE_IMAGE"],
        &["networkPolicy", "true", "--network-policy"],
        &["networkPolicy.egress", "-", "--network-policy"],
        &["env.API_KEY", "(passed", "through)", "--env"],
        &["grace", "20", "default"],
    ] {
        assert!(
            rows.iter().any(|found| found == row),
            "no {row:?} in {table}"
        );
    }
    assert!(!table.contains("hunter2"), "{table}");
    let warning = "podcradle: PODCRADLE_MEMORY_LIMT is no variable of podcradle; did you mean PODCRADLE_MEMORY_LIMIT?\n";
    assert_eq!(said, warning);
    // Whoever makes objects of it is told the same.
    let rendered = podcradle(&["render"], &variables);
    assert_eq!(text(&rendered.stderr), warning);
    assert_eq!(rendered.status.code(), Some(0));
}

#[test]
fn no_secret_on_the_command_line_is_repeated() {
    for args in [
        &["--env", "API_KEY=hunter2"][..],
        &["--repo", "https://u:hunter2?w@git.example/x"],
        &["--server", "https://u:hunter2?w@server.example"],
        &["--overlay", "spec: {serviceAccountName: hunter2}}"],
        &[
            "--overlay",
            r#"{"spec": {"containers": [{"name": "host", "args": "--key hunter2"}]}}"#,
        ],
        &[
            "--overlay",
            r#"{"spec": {"containers": [{"env": [{"value": "hunter2""#,
        ],
    ] {
        let refused = podcradle(&[&["render", "--image", "i:1"], args].concat(), &[]);
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(
            said.contains(args[0]) && !said.contains("hunter2"),
            "{said}"
        );
    }
}

#[test]
fn of_a_flag_that_is_repeated_every_wrong_text_is_named() {
    let args = ["render", "--mount", "one", "--mount", "two", "--label", "x"];
    let refused = podcradle(&args, &[]);
    let said = text(&refused.stderr);
    let of = |flag: &str| said.lines().filter(|line| line.contains(flag)).count();
    assert_eq!((of("--mount"), of("--label")), (2, 1), "{said}");
}

#[test]
fn what_is_wrong_is_told_as_its_author_wrote_it() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let path = file.path().to_str().expect("a path");
    let said = |args: &[&str]| {
        let refused = podcradle(&[&["render", "--image", "i:1"], args].concat(), &[]);
        assert_eq!(refused.status.code(), Some(2), "{args:?}");
        text(&refused.stderr).to_owned()
    };
    let of_file = |spec: &str| {
        std::fs::write(path, spec).expect("written");
        said(&["-f", path])
    };
    for (said, line) in [
        (
            said(&["--label", "podcradle.dev/x=1"]),
            "--label \"podcradle.dev/x=1\": is a label",
        ),
        (
            said(&["--timeout", "-1s"]),
            "--timeout \"-1s\": must not be negative",
        ),
        (
            said(&["--ttl", "10000000000000h"]),
            "--ttl \"10000000000000h\": must be at most 10 years",
        ),
        (
            of_file("grace: 1e20"),
            "grace \"1e20\": must be a whole number",
        ),
        (
            of_file("host: agent --x"),
            "host \"a text\": must be a list",
        ),
        (
            of_file("ttl: 1h\nttl: 2h"),
            "duplicate mapping key: ttl at line 2",
        ),
    ] {
        assert!(said.contains(line), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn what_was_taken_away_was_not_asked_for() {
    for args in [
        &["--owner", "x", "--ttl", ""][..],
        &["--memory-request", "", "--memory-limit", "512Mi"],
        &["--pull-timeout", "", "--timeout", "2m"],
    ] {
        let rendered = podcradle(&[&["render", "--image", "i:1"], args].concat(), &[]);
        let said = text(&rendered.stderr);
        assert_eq!(rendered.status.code(), Some(0), "{args:?}: {said}");
    }
}

#[test]
fn a_launch_tells_programs_of_a_wrong_configuration_too() {
    let args = [
        "launch", "--image", "i:1", "-o", "json", "--config", "/nowhere",
    ];
    let refused = podcradle(&args, &[]);
    let told: serde_json::Value = serde_json::from_slice(&refused.stdout).expect("JSON");
    assert_eq!(told["error"]["reason"], "Invalid", "{told}");
    assert_eq!(refused.status.code(), Some(2));
}
