//! The repository: its URL and branch are arguments of git, which must take
//! them for nothing else, and no credential is in them.

use super::Checks;
use crate::spec::Repo;

const FORM: &str = "must be an https://, http://, ssh:// or git:// URL, or user@host:path";
const CREDENTIALS: &str = "must not hold credentials; use --credentials-secret with GIT_TOKEN";

pub fn check(repo: &Repo, c: &mut Checks) {
    let shown = redact_url(&repo.url);
    if let Some(rule) = wrong_url(&repo.url) {
        c.refuse("repo.url", shown, rule);
    }
    if let Some(branch) = &repo.branch {
        let rule = "must be a branch or tag name as git-check-ref-format allows";
        c.require(is_branch(branch), "repo.branch", branch, rule);
    }
    let dir = repo.dir();
    let one = !dir.is_empty()
        && dir.len() <= 255
        && ![".", "..", ".git"].contains(&dir)
        && !dir.starts_with('-')
        && !dir.contains(['/', '\0', ':'])
        && !dir.chars().any(char::is_control);
    // A directory that is made of a wrong URL is not wrong once more.
    if !repo.dir.is_empty() || wrong_url(&repo.url).is_none() {
        let rule = "must be one path component, not starting with '-'";
        c.require(one, "repo.dir", dir, rule);
    }
}

fn wrong_url(url: &str) -> Option<&'static str> {
    let blank = |b: u8| b.is_ascii_control() || b == b' ';
    if url.is_empty() || url.starts_with('-') || url.bytes().any(blank) {
        return Some("must be a git URL without blanks or control characters");
    }
    if holds_credential(url) {
        return Some(CREDENTIALS);
    }
    let Some((scheme, rest)) = url.split_once("://") else {
        let scp = url.split_once(':').is_some_and(|(server, path)| {
            !server.is_empty()
                && !path.is_empty()
                && !server.contains('/')
                && !server.contains("@-")
                && !path.starts_with(':')
        });
        return (!scp).then_some(FORM);
    };
    let authority = rest.split('/').next().unwrap_or("");
    let (user, server) = match authority.rsplit_once('@') {
        Some((user, server)) => (Some(user), server),
        None => (None, authority),
    };
    if !["https", "http", "ssh", "git"].contains(&scheme) {
        return Some(FORM);
    }
    // A bare user name is how ssh says who to log in as; all else is a credential.
    if user.is_some() && scheme != "ssh" {
        return Some(CREDENTIALS);
    }
    // ssh would take it for an option.
    let server_is_named = !server.is_empty() && !server.starts_with(['-', ':', '?', '#']);
    (!server_is_named).then_some("names no server")
}

fn is_branch(branch: &str) -> bool {
    !branch.is_empty()
        && !branch.starts_with(['-', '/'])
        && !branch.ends_with(['/', '.'])
        && !branch.contains("..")
        && !branch.contains("//")
        && !branch.contains("@{")
        && !branch
            .bytes()
            .any(|b| b.is_ascii_control() || b" ~^:?*[\\".contains(&b))
}

/// Whether a URL has a password before its server, or a parameter that is
/// named like a credential.
pub fn holds_credential(url: &str) -> bool {
    let (_, rest) = split(url);
    let (before, query) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
    let authority = before.split('/').next().unwrap_or("");
    let password = authority
        .rsplit_once('@')
        .is_some_and(|(user, _)| user.contains(':'));
    let words = [
        "token",
        "key",
        "secret",
        "passw",
        "pwd",
        "credential",
        "auth",
        "sig",
    ];
    let telling = |parameter: &str| {
        let name = parameter.split('=').next().unwrap_or("").to_lowercase();
        words.iter().any(|word| name.contains(word))
    };
    password || query.split(['?', '#', '&', ';']).any(telling)
}

/// The URL as it may be shown: what stands before an `@`, and what could be a
/// credential among its parameters, is hidden.
pub fn redact_url(url: &str) -> String {
    let (scheme, rest) = split(url);
    let (before, query) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
    let authority = before.split('/').next().unwrap_or("");
    let before = match authority.rsplit_once('@') {
        // How scp's form says who to log in as.
        Some((user, _)) if scheme.is_empty() && !user.contains(':') => before.to_owned(),
        Some((user, _)) => format!("[redacted]{}", &before[user.len()..]),
        None => before.to_owned(),
    };
    let query = if holds_credential(url) && !query.is_empty() {
        "?[redacted]"
    } else {
        query
    };
    format!("{scheme}{before}{query}")
}

fn split(url: &str) -> (&str, &str) {
    url.find("://").map_or(("", url), |at| url.split_at(at + 3))
}

#[cfg(test)]
mod tests {
    use super::super::tests::problems;
    use super::*;

    fn of(url: &str) -> Vec<String> {
        problems(|s| s.repo = Some(repo(url)))
    }

    fn repo(url: &str) -> Repo {
        Repo {
            url: url.into(),
            branch: Some("main".into()),
            dir: "r".into(),
        }
    }

    #[test]
    fn credentials_in_a_repository_url_are_refused_and_not_shown() {
        for url in [
            "https://user:hunter2@git.example/x",
            "https://hunter2@git.example/x",
            "ssh://git:hunter2@git.example/x",
            "git:hunter2@git.example:x",
            "https:user:hunter2@git.example/x",
            "https://git.example/x?access_token=hunter2",
            "https://git.example/x.git?a=b&private_token=hunter2",
            "https://git.example/x#apiKey=hunter2",
        ] {
            let found = of(url);
            assert!(
                found.len() == 1 && found[0].contains("credentials"),
                "{url}: {found:?}"
            );
            assert!(!found[0].contains("hunter2"), "{found:?}");
        }
    }

    #[test]
    fn the_usual_forms_of_a_git_url_are_taken() {
        for url in [
            "https://git.example/team/x.git",
            "http://10.0.0.1:3000/x",
            "ssh://git@git.example/x",
            "ssh://git.example:2222/x",
            "git://git.example/x",
            "git@git.example:x/y",
            "git.example:x",
        ] {
            assert_eq!(of(url), Vec::<String>::new(), "{url}");
        }
    }

    #[test]
    fn what_git_would_take_for_an_option_or_run_is_refused() {
        for url in [
            "--upload-pack=touch /tmp/x",
            "-c",
            "ext::sh -c x",
            "ext::sh",
            "file:///etc",
            "ssh://-oProxyCommand=x/y",
            "ssh://git@-oProxyCommand=x/y",
            "git@-oProxyCommand=x:y",
            "https:///x",
            "/etc",
            "",
            "a b",
        ] {
            assert_eq!(of(url).len(), 1, "{url}");
        }
        for branch in ["-x", "a..b", "a b", "", "a~1", "/a", "a/", "a@{1}"] {
            let found = problems(|s| {
                s.repo = Some(Repo {
                    branch: Some(branch.into()),
                    ..repo("https://g/x")
                });
            });
            assert!(
                found.len() == 1 && found[0].starts_with("repo.branch"),
                "{branch}: {found:?}"
            );
        }
        for dir in ["..", "a/b", "-a", ".", ".git", "a:b"] {
            let found = problems(|s| {
                s.repo = Some(Repo {
                    dir: dir.into(),
                    ..repo("https://g/x")
                });
            });
            assert!(
                found.len() == 1 && found[0].starts_with("repo.dir"),
                "{dir}: {found:?}"
            );
        }
    }
}
