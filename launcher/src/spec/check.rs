//! Validation: every rule a spec must meet, each with one line that names the
//! field, the value and what would be right.

use std::cmp::Ordering;
use std::fmt;
use std::time::Duration;

use super::{Problem, Problems, Repo, SandboxSpec, TOKEN_MOUNT};
use crate::name::{self, NameError};
use crate::quantity::{self, Quantity};

#[derive(Default)]
struct Checks(Vec<Problem>);

impl Checks {
    fn refuse(&mut self, field: &str, value: impl fmt::Display, rule: impl fmt::Display) {
        self.0.push(Problem {
            field: field.to_owned(),
            value: value.to_string(),
            rule: rule.to_string(),
        });
    }

    fn name(&mut self, field: &str, value: &str, checked: Result<(), NameError>) {
        if let Err(error) = checked {
            self.refuse(field, value, error);
        }
    }

    fn require(&mut self, right: bool, field: &str, value: impl fmt::Display, rule: &str) {
        if !right {
            self.refuse(field, value, rule);
        }
    }
}

pub(super) fn all(spec: &SandboxSpec) -> Result<(), Problems> {
    let mut checks = Checks::default();
    names(spec, &mut checks);
    images(spec, &mut checks);
    paths(spec, &mut checks);
    host(spec, &mut checks);
    if let Some(repo) = &spec.repo {
        repository(repo, &mut checks);
    }
    resources(spec, &mut checks);
    times(spec, &mut checks);
    if checks.0.is_empty() {
        Ok(())
    } else {
        Err(Problems(checks.0))
    }
}

fn names(spec: &SandboxSpec, c: &mut Checks) {
    c.name(
        "sandbox",
        &spec.sandbox,
        name::check_rfc1035_label(&spec.sandbox, name::MAX_NAME),
    );
    c.name(
        "launchId",
        &spec.launch_id,
        name::check_rfc1123_label(&spec.launch_id, 63),
    );
    c.name(
        "serviceAccount",
        &spec.service_account,
        name::check_rfc1123_subdomain(&spec.service_account),
    );
    if let Some(secret) = &spec.credentials_secret {
        c.name(
            "credentialsSecret",
            secret,
            name::check_rfc1123_subdomain(secret),
        );
    }
    for (key, value) in &spec.node_selector {
        let (prefix, base) = key
            .split_once('/')
            .map_or((None, key.as_str()), |(p, b)| (Some(p), b));
        let well_formed = !base.is_empty()
            && name::check_label_value(base).is_ok()
            && prefix.is_none_or(|p| name::check_rfc1123_subdomain(p).is_ok());
        c.require(
            well_formed,
            "nodeSelector",
            key,
            "must be a label key such as kubernetes.io/arch",
        );
        c.name(
            &format!("nodeSelector.{key}"),
            value,
            name::check_label_value(value),
        );
    }
}

fn images(spec: &SandboxSpec, c: &mut Checks) {
    let rule = "must be an image reference such as registry.example/team/host:1.2, in lower case and without blanks";
    let well_formed = |image: &str| {
        let name = image.split_once('@').map_or(image, |(name, _)| name);
        let tag_at = name
            .rfind(':')
            .filter(|at| !name[*at..].contains('/'))
            .unwrap_or(name.len());
        let path = &name[..tag_at];
        !path.is_empty()
            && image.bytes().all(|b| b.is_ascii_graphic())
            && !repository_part(path)
                .bytes()
                .any(|b| b.is_ascii_uppercase())
            && !path.starts_with(['/', '-', '.', ':'])
            && !path.ends_with('/')
            && !name.ends_with(':')
    };
    c.require(well_formed(&spec.image), "image", &spec.image, rule);
    if let Some(image) = &spec.prep_image {
        c.require(well_formed(image), "prepImage", image, rule);
    }
    if let Some(policy) = &spec.image_pull_policy {
        let known = ["Always", "IfNotPresent", "Never"].contains(&policy.as_str());
        c.require(
            known,
            "imagePullPolicy",
            policy,
            "must be Always, IfNotPresent or Never",
        );
    }
}

/// The reference without a registry's host name, which may be upper case.
fn repository_part(path: &str) -> &str {
    match path.split_once('/') {
        Some((registry, rest)) if registry.contains(['.', ':']) || registry == "localhost" => rest,
        _ => path,
    }
}

fn is_clean_absolute(path: &str) -> bool {
    path.starts_with('/')
        && !path.contains(['\0', ':'])
        && path
            .split('/')
            .skip(1)
            .all(|part| !part.is_empty() && part != "." && part != "..")
}

fn paths(spec: &SandboxSpec, c: &mut Checks) {
    let rule = "must be an absolute path without '..', ':' or an empty part";
    c.require(is_clean_absolute(&spec.home), "home", &spec.home, rule);
    c.require(
        spec.init_dir == "/" || is_clean_absolute(&spec.init_dir),
        "initDir",
        &spec.init_dir,
        rule,
    );
    let protected = [
        "/proc",
        "/sys",
        "/dev",
        "/etc",
        "/usr",
        "/bin",
        "/sbin",
        "/lib",
        TOKEN_MOUNT,
    ];
    let under = |inner: &str, outer: &str| {
        inner == outer
            || inner
                .strip_prefix(outer)
                .is_some_and(|rest| rest.starts_with('/'))
    };
    for path in protected {
        let clash = under(&spec.home, path) || under(path, &spec.home);
        c.require(
            !clash,
            "home",
            &spec.home,
            "must not cover or lie in a system directory or the token's mount",
        );
    }
    let id = 1..=i64::from(i32::MAX);
    c.require(
        id.contains(&spec.run_as),
        "runAs",
        spec.run_as,
        "must be a user id from 1 to 2147483647 (root is not allowed)",
    );
}

fn host(spec: &SandboxSpec, c: &mut Checks) {
    c.name(
        "envPrefix",
        &spec.env_prefix,
        name::check_env_name(&spec.env_prefix),
    );
    let url_rule =
        "must be an http:// or https:// URL without credentials, blanks or control characters";
    if let Some(server) = &spec.server {
        c.require(is_http_url(server), "server", server, url_rule);
    }
    for (field, value) in [("hostId", spec.host_id()), ("hostName", spec.host_name())] {
        let plain = !value.is_empty() && value.len() <= 253 && !value.chars().any(char::is_control);
        c.require(
            plain,
            field,
            value,
            "must be 1 to 253 characters without control characters",
        );
    }
    if spec.host.first().is_some_and(String::is_empty) {
        c.refuse("host", "", "the host's command must not be empty");
    }
    for argument in &spec.host {
        c.require(
            !argument.contains('\0'),
            "host",
            argument,
            "an argument cannot hold a NUL character",
        );
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
    let refuse = |rule: &str| {
        Err(Problem {
            field: "env".to_owned(),
            value: key.to_owned(),
            rule: rule.to_owned(),
        })
    };
    if let Err(error) = name::check_env_name(key) {
        return refuse(&error.to_string());
    }
    let reserved = ["HOME", "IS_SANDBOX", "GIT_TERMINAL_PROMPT"].contains(&key)
        || key
            .strip_prefix(prefix)
            .is_some_and(|rest| rest.starts_with('_'));
    if reserved {
        return refuse("is set by podcradle itself and cannot be passed through");
    }
    let words = [
        "TOKEN",
        "KEY",
        "SECRET",
        "PASSWORD",
        "CREDENTIAL",
        "CREDENTIALS",
    ];
    if key
        .split('_')
        .any(|part| words.contains(&part.to_ascii_uppercase().as_str()))
    {
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
    let Some(rest) = url
        .strip_prefix("http://")
        .or_else(|| url.strip_prefix("https://"))
    else {
        return false;
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or("");
    !authority.is_empty() && !authority.contains('@') && url.bytes().all(|b| b.is_ascii_graphic())
}

fn repository(repo: &Repo, c: &mut Checks) {
    let url = &repo.url;
    let shown = redact_url(url);
    if url.bytes().any(|b| b.is_ascii_control() || b == b' ')
        || url.is_empty()
        || url.starts_with('-')
    {
        c.refuse(
            "repo",
            &shown,
            "must be a git URL without blanks or control characters",
        );
    } else if let Some((scheme, rest)) = url.split_once("://") {
        let known = ["https", "http", "ssh", "git"].contains(&scheme);
        c.require(
            known,
            "repo",
            &shown,
            "must be an https://, http://, ssh:// or git:// URL, or user@host:path",
        );
        let authority = rest.split('/').next().unwrap_or("");
        let user = authority.rsplit_once('@').map(|(user, _)| user);
        // A bare user name is how ssh says who to log in as; all else is a credential.
        let credential = user.is_some_and(|user| scheme != "ssh" || user.contains(':'));
        c.require(
            !credential,
            "repo",
            &shown,
            "must not hold credentials; use --credentials-secret with GIT_TOKEN",
        );
        c.require(!authority.is_empty(), "repo", &shown, "names no server");
    } else {
        let scp = url.split_once(':').is_some_and(|(server, path)| {
            !server.is_empty()
                && !path.is_empty()
                && !server.contains('/')
                && !path.starts_with(':')
        });
        c.require(
            scp,
            "repo",
            &shown,
            "must be an https://, http://, ssh:// or git:// URL, or user@host:path",
        );
    }
    if let Some(branch) = &repo.branch {
        let well_formed = !branch.is_empty()
            && !branch.starts_with(['-', '/'])
            && !branch.ends_with(['/', '.'])
            && !branch.contains("..")
            && !branch.contains("//")
            && !branch.contains("@{")
            && !branch
                .bytes()
                .any(|b| b.is_ascii_control() || b" ~^:?*[\\".contains(&b));
        c.require(
            well_formed,
            "branch",
            branch,
            "must be a branch or tag name as git-check-ref-format allows",
        );
    }
    let one = !repo.dir().is_empty()
        && repo.dir().len() <= 255
        && ![".", "..", ".git"].contains(&repo.dir())
        && !repo.dir().starts_with('-')
        && !repo.dir().contains(['/', '\0', ':'])
        && !repo.dir().chars().any(char::is_control);
    c.require(
        one,
        "repoDir",
        repo.dir(),
        "must be one path component, not starting with '-'",
    );
}

/// The URL as it may be shown: what stands before an `@` is hidden.
pub fn redact_url(url: &str) -> String {
    match url.split_once("://") {
        Some((scheme, rest)) => match rest.split('/').next().and_then(|a| a.rsplit_once('@')) {
            Some((user, _)) => format!("{scheme}://[redacted]{}", &rest[user.len()..]),
            None => url.to_owned(),
        },
        None => url.to_owned(),
    }
}

fn resources(spec: &SandboxSpec, c: &mut Checks) {
    let r = &spec.resources;
    for (field, value) in [
        ("resources.cpuRequest", &r.cpu_request),
        ("resources.memoryRequest", &r.memory_request),
        ("resources.cpuLimit", &r.cpu_limit),
        ("resources.memoryLimit", &r.memory_limit),
    ] {
        c.require(
            Quantity::parse(value).is_some(),
            field,
            value,
            quantity::RULE,
        );
    }
    for (field, request, limit) in [
        ("resources.cpuRequest", &r.cpu_request, &r.cpu_limit),
        (
            "resources.memoryRequest",
            &r.memory_request,
            &r.memory_limit,
        ),
    ] {
        if Quantity::compare(request, limit) == Some(Ordering::Greater) {
            c.refuse(
                field,
                request,
                format!("must not be above its limit {limit}"),
            );
        }
    }
}

fn times(spec: &SandboxSpec, c: &mut Checks) {
    let needed = u64::from(spec.grace) + u64::from(spec.drain) + 2;
    c.require(
        needed <= u64::from(spec.termination_grace_period),
        "grace",
        spec.grace,
        &format!(
            "grace {} + drain {} + 2 must not be above terminationGracePeriod {}",
            spec.grace, spec.drain, spec.termination_grace_period
        ),
    );
    let minute = Duration::from_mins(1);
    let decade = Duration::from_hours(10 * 365 * 24);
    if let Some(ttl) = spec.ttl {
        let right = (minute..=decade).contains(&ttl);
        c.require(
            right,
            "ttl",
            format!("{}s", ttl.as_secs()),
            "must be from 1m to 10 years, or none",
        );
        c.require(
            ttl <= spec.max_lifetime,
            "ttl",
            format!("{}s", ttl.as_secs()),
            &format!(
                "must not be above maxLifetime, {}s",
                spec.max_lifetime.as_secs()
            ),
        );
    }
    let right = (minute..=decade).contains(&spec.max_lifetime);
    c.require(
        right,
        "maxLifetime",
        format!("{}s", spec.max_lifetime.as_secs()),
        "must be from 1m to 10 years",
    );
    c.require(
        spec.budgets.total >= Duration::from_secs(1),
        "timeout",
        format!("{:?}", spec.budgets.total),
        "must be at least 1s",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(change: impl FnOnce(&mut SandboxSpec)) -> Vec<String> {
        let mut spec = SandboxSpec::new("podcradle-a-000000", "localhost/podcradle/sandbox:dev");
        change(&mut spec);
        spec.validate().map_or_else(
            |p| p.0.iter().map(ToString::to_string).collect(),
            |()| Vec::new(),
        )
    }

    fn repo(url: &str) -> Repo {
        Repo {
            url: url.into(),
            branch: Some("main".into()),
            dir: "r".into(),
        }
    }

    #[test]
    fn the_defaults_are_valid() {
        assert_eq!(problems(|_| ()), Vec::<String>::new());
    }

    #[test]
    fn all_problems_are_reported_at_once_with_field_value_and_rule() {
        let found = problems(|s| {
            s.sandbox = "9a".into();
            s.resources.memory_limit = "4GiB".into();
            s.grace = 29;
        });
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(
            found[0].starts_with("sandbox \"9a\": must start with a letter"),
            "{found:?}"
        );
        assert!(
            found[1].starts_with("resources.memoryLimit \"4GiB\": must be a quantity"),
            "{found:?}"
        );
        assert!(found[2].contains("grace 29 + drain 5 + 2"), "{found:?}");
    }

    #[test]
    fn credentials_in_a_repository_url_are_refused_and_not_shown() {
        let found = problems(|s| s.repo = Some(repo("https://user:hunter2@git.example/x")));
        assert!(found[0].contains("credentials"), "{found:?}");
        assert!(!found[0].contains("hunter2"), "{found:?}");
        assert_eq!(
            problems(|s| s.repo = Some(repo("ssh://git@git.example/x"))).len(),
            0
        );
        assert_eq!(
            problems(|s| s.repo = Some(repo("git@git.example:x/y"))).len(),
            0
        );
    }

    #[test]
    fn what_git_would_take_for_an_option_or_run_is_refused() {
        for url in [
            "--upload-pack=touch /tmp/x",
            "-c",
            "ext::sh -c x",
            "file:///etc",
            "",
            "a b",
        ] {
            assert_ne!(problems(|s| s.repo = Some(repo(url))).len(), 0, "{url}");
        }
        for branch in ["-x", "a..b", "a b", "", "a~1", "/a"] {
            let found = problems(|s| {
                s.repo = Some(repo("https://g/x"));
                if let Some(r) = &mut s.repo {
                    r.branch = Some(branch.into());
                }
            });
            assert_ne!(found.len(), 0, "{branch}");
        }
        for dir in ["..", "a/b", "-a", "."] {
            let found = problems(|s| {
                s.repo = Some(repo("https://g/x"));
                if let Some(r) = &mut s.repo {
                    r.dir = dir.into();
                }
            });
            assert_ne!(found.len(), 0, "{dir}");
        }
    }

    #[test]
    fn passthrough_refuses_what_is_unset_reserved_or_a_credential() {
        let ok = |key, value| passthrough(key, value, "PODCRADLE").is_ok();
        assert!(ok("LANG", Some("C")));
        assert!(ok("MONKEY", Some("1")), "KEY counts as a segment only");
        for key in [
            "API_KEY",
            "GITHUB_TOKEN",
            "password",
            "AWS_SECRET_ID",
            "HOME",
            "PODCRADLE_HOST_ID",
            "a-b",
            "",
        ] {
            assert!(!ok(key, Some("1")), "{key}");
        }
        assert!(!ok("LANG", None));
    }

    #[test]
    fn image_references_are_checked() {
        for good in [
            "a",
            "a:1",
            "r:5000/a/b:1",
            "r.example/a@sha256:00",
            "r/a:1@sha256:00",
        ] {
            assert_eq!(problems(|s| s.image = good.into()).len(), 0, "{good}");
        }
        for bad in ["", "a b", "UPPER", "a:", "/a", "a/", "-a", ":1"] {
            assert_ne!(problems(|s| s.image = bad.into()).len(), 0, "{bad}");
        }
    }

    #[test]
    fn home_does_not_cover_the_system_or_the_token() {
        for bad in [
            "/",
            "/run",
            "/run/podcradle/token/x",
            "/etc/x",
            "relative",
            "/a/../b",
            "/a/",
        ] {
            assert_ne!(problems(|s| s.home = bad.into()).len(), 0, "{bad}");
        }
        assert_eq!(problems(|s| s.home = "/home/omnigent".into()).len(), 0);
    }
}
