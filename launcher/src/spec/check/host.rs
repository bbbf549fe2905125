//! The host: its command, its variables, how it dials back.

use super::Checks;
use super::repo::holds_credential;
use crate::name;
use crate::spec::server::Server;
use crate::spec::{Problem, SandboxSpec};

pub fn check(spec: &SandboxSpec, c: &mut Checks) {
    let prefix = name::check_env_name(&spec.env_prefix);
    c.name("envPrefix", &spec.env_prefix, prefix);
    if let Some(server) = &spec.server {
        let shown = super::redact_url(server);
        let rule = "must be an http:// or https:// URL of a name or an address in its usual form, without credentials, blanks or control characters";
        c.require(is_http_url(server), "server", shown, rule);
    }
    for (field, value) in [("hostId", spec.host_id()), ("hostName", spec.host_name())] {
        let plain = !value.is_empty() && value.len() <= 253 && !value.chars().any(char::is_control);
        let rule = "must be 1 to 253 characters without control characters";
        c.require(plain, field, value, rule);
    }
    if spec.host.first().is_some_and(String::is_empty) {
        c.refuse("host", "", "the host's command must not be empty");
    }
    for argument in &spec.host {
        let rule = "an argument cannot hold a NUL character";
        c.require(!argument.contains('\0'), "host", argument, rule);
    }
    if let Some(max) = spec.restart.and_then(|restart| restart.max) {
        let rule = "must be at least 1; without restarts leave restart out";
        c.require(max >= 1, "restart.max", max, rule);
    }
    for (key, value) in &spec.env {
        if let Err(problem) = passthrough(key, Some(value), &spec.env_prefix) {
            c.0.push(problem);
        }
    }
}

/// Whether a variable of the caller's environment may go to the host.
///
/// # Errors
/// Unset, malformed, reserved by Podcradle, or named like a credential: those
/// belong into a Secret, since a Pod's spec is readable to many.
pub fn passthrough(key: &str, value: Option<&str>, prefix: &str) -> Result<(), Problem> {
    // Who writes `NAME=VALUE`, as for docker, is not shown the value.
    let name = key.split('=').next().unwrap_or_default();
    let refuse = |rule: &str| Err(Problem::new("env", name, rule));
    if name != key {
        return refuse("must be a name alone: the value comes from podcradle's environment");
    }
    if let Err(error) = name::check_env_name(key) {
        return refuse(&error.to_string());
    }
    let begins = |prefix: &str| {
        let rest = key.strip_prefix(prefix);
        rest.is_some_and(|rest| rest.starts_with('_'))
    };
    if ["HOME", "IS_SANDBOX", "GIT_TERMINAL_PROMPT"].contains(&key)
        || begins(prefix)
        || begins("PODCRADLE")
    {
        return refuse("is set by podcradle itself and cannot be passed through");
    }
    if begins("TINI") {
        return refuse("would change what podcradle-init does, and cannot be passed through");
    }
    let words = [
        "TOKEN",
        "KEY",
        "SECRET",
        "PASSWORD",
        "CREDENTIAL",
        "CREDENTIALS",
    ];
    let mut parts = key.split('_').map(str::to_ascii_uppercase);
    if parts.any(|part| words.contains(&part.as_str())) {
        return refuse(
            "looks like a credential; put it into a Secret and name that with --credentials-secret",
        );
    }
    match value {
        None => refuse("is not set in the environment of podcradle"),
        Some(value) if value.contains('\0') => refuse("its value holds a NUL character"),
        Some(_) => Ok(()),
    }
}

fn is_http_url(url: &str) -> bool {
    Server::of(url).is_some() && url.bytes().all(|b| b.is_ascii_graphic()) && !holds_credential(url)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{problems, refused};
    use super::*;
    use crate::spec::Restart;

    #[test]
    fn passthrough_refuses_what_is_unset_reserved_or_a_credential() {
        let ok = |key, value| passthrough(key, value, "AGENT").is_ok();
        assert!(ok("LANG", Some("C")) && ok("EMPTY", Some("")));
        assert!(ok("MONKEY", Some("1")), "KEY counts as a segment only");
        assert!(ok("AGENTS", Some("1")) && ok("TINIEST", Some("1")));
        for key in [
            "API_KEY",
            "GITHUB_TOKEN",
            "password",
            "AWS_SECRET_ID",
            "HOME",
            "IS_SANDBOX",
            "GIT_TERMINAL_PROMPT",
            "PODCRADLE_HOST_ID",
            "AGENT_HOST_ID",
            "AGENT_ANYTHING",
            "TINI_SUBREAPER",
            "a-b",
            "1A",
            "",
        ] {
            assert!(!ok(key, Some("1")), "{key}");
        }
        assert!(!ok("LANG", None));
    }

    #[test]
    fn a_value_that_is_given_with_its_name_is_not_shown() {
        let given = passthrough("API_KEY=hunter2", None, "AGENT").unwrap_err();
        assert_eq!(
            given.to_string(),
            "env \"API_KEY\": must be a name alone: the value comes from podcradle's environment"
        );
    }

    #[test]
    fn a_server_is_a_url_that_anyone_may_see() {
        for good in [
            "http://s",
            "https://s:8443/path?room=1",
            "http://[2001:db8::1]:80",
            "http://10.0.0.1",
        ] {
            assert_eq!(
                problems(|s| s.server = Some(good.into())),
                Vec::<String>::new(),
                "{good}"
            );
        }
        for bad in [
            "s:80",
            "ftp://s",
            "http://",
            "http://:80",
            "http://s:port",
            "http://s:99999",
            "http://u:hunter2@s",
            "http://s/?token=hunter2",
            "http://u:hunter2?w@s",
            "http://u:hunter2/w@s",
            "http://s/a b",
            "http://10.1.2.3\\@s",
            "http://0x7f.1",
            "http://s:0",
        ] {
            refused("server", "http:// or https:// URL", |s| {
                s.server = Some(bad.into());
            });
            let found = problems(|s| s.server = Some(bad.into()));
            assert!(!found[0].contains("hunter2"), "{found:?}");
        }
    }

    #[test]
    fn the_command_and_its_restarts_are_checked() {
        refused("host", "must not be empty", |s| {
            s.host = vec![String::new()];
        });
        refused("host", "NUL", |s| s.host = vec!["a\0b".into()]);
        refused("hostId", "control", |s| s.host_id = "a\nb".into());
        refused("envPrefix", "letters", |s| s.env_prefix = "a-b".into());
        refused("restart.max", "at least 1", |s| {
            s.restart = Some(Restart { max: Some(0) });
        });
        assert_eq!(
            problems(|s| s.restart = Some(Restart { max: None })).len(),
            0
        );
    }
}
