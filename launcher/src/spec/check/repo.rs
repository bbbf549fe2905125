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
    let (_, user, rest) = parts(url);
    let password = user.contains(':');
    let query = rest.find(['?', '#']).map_or("", |at| &rest[at..]);
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
    let (scheme, user, rest) = parts(url);
    let user = match user {
        // How scp's form says who to log in as.
        user if user.is_empty() || (scheme.is_empty() && !user.contains(':')) => user,
        _ => "[redacted]",
    };
    let (before, query) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
    let query = if holds_credential(url) && !query.is_empty() {
        "?[redacted]"
    } else {
        query
    };
    format!("{scheme}{user}{before}{query}")
}

/// Scheme, who logs in, and the rest with its `@`. A password that was not
/// encoded may hold what ends a URL's authority, so what stands before an `@`
/// counts as one wherever that may be.
fn parts(url: &str) -> (&str, &str, &str) {
    let (scheme, rest) = url.find("://").map_or(("", url), |at| url.split_at(at + 3));
    let authority = &rest[..rest.find('/').unwrap_or(rest.len())];
    let after = authority.rsplit(']').next().unwrap_or("");
    let port = after.split_once(':').map(|(_, port)| port);
    let end = match authority.rfind('@') {
        Some(at) => at,
        // What stands for a port and is none was the start of a password.
        None if !scheme.is_empty() && port.is_some_and(|port| port.parse::<u16>().is_err()) => {
            rest.rfind('@').unwrap_or(0)
        }
        None => 0,
    };
    let (user, rest) = rest.split_at(end);
    (scheme, user, rest)
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
            "https://u:hunter2?w@git.example/x",
            "https://u:hunter2#w@git.example/x",
            "https://u:hunter2/w@git.example/x",
            "https://u:w@hunter2@git.example/x",
            "ssh://u:hunter2?w@git.example/x",
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
            "git.example:x/y@1",
            "https://git.example:8443/@scope/x",
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
