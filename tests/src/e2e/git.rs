//! A git repository to clone, served over git's plain ("dumb") HTTP protocol:
//! files, nothing else.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::IntoResponse as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tempfile::TempDir;

use super::middle::{serve_tls, tls};
use super::{Result, Running, Trying, WATCHDOG};
use crate::serving::Serving;

/// A served repository; dropping it ends that.
pub struct Repository {
    serving: Serving,
    scheme: &'static str,
    _folder: TempDir,
}

impl Repository {
    /// A repository `hello.git` with a branch `main` and one `other`, each with a
    /// file `README.md` that names its branch.
    pub fn serve(on: IpAddr) -> Result<Self> {
        Self::serve_with(on, false)
    }

    /// The same with a file of 64 MiB that git has to hold in memory, since it
    /// is in another encoding, and that is next to nothing on the network.
    pub fn serve_large(on: IpAddr) -> Result<Self> {
        Self::serve_with(on, true)
    }

    /// One that accepts whoever clones it, and never answers.
    pub fn hang(on: IpAddr) -> Result<Self> {
        let folder = tempfile::tempdir().trying("make a temporary folder")?;
        let never = std::future::pending::<StatusCode>;
        Self::start(on, folder, axum::Router::new().fallback(never))
    }

    /// The first one, behind this password and behind TLS, by a certificate
    /// that whoever clones must not look at.
    pub fn private(on: IpAddr, password: &str) -> Result<Self> {
        let folder = tempfile::tempdir().trying("make a temporary folder")?;
        make(folder.path(), false)?;
        let (acceptor, _) = tls()?;
        let pair = STANDARD.encode(format!("x-access-token:{password}"));
        let known = Arc::new((folder.path().to_owned(), format!("Basic {pair}")));
        let serving = Serving::on((on, 0), move |listener| {
            serve_tls(listener, acceptor, move |request| {
                let known = Arc::clone(&known);
                async move {
                    let said = request.headers().get("authorization");
                    if said.is_none_or(|said| said.as_bytes() != known.1.as_bytes()) {
                        let challenge = [("www-authenticate", r#"Basic realm="podcradle""#)];
                        return Ok((StatusCode::UNAUTHORIZED, challenge).into_response());
                    }
                    let path = request.uri().clone();
                    Ok(file(State(known.0.clone()), path).await.into_response())
                }
            })
        });
        Ok(Repository {
            serving: serving.trying(format!("listen on {on}"))?,
            scheme: "https",
            _folder: folder,
        })
    }

    fn serve_with(on: IpAddr, large: bool) -> Result<Self> {
        let folder = tempfile::tempdir().trying("make a temporary folder")?;
        make(folder.path(), large)?;
        let router = axum::Router::new()
            .fallback(file)
            .with_state(folder.path().to_owned());
        Self::start(on, folder, router)
    }

    fn start(on: IpAddr, folder: TempDir, router: axum::Router) -> Result<Self> {
        let serving = Serving::router((on, 0), router).trying(format!("listen on {on}"))?;
        Ok(Repository {
            serving,
            scheme: "http",
            _folder: folder,
        })
    }

    /// What to clone.
    pub fn url(&self) -> String {
        format!("{}://{}/hello.git", self.scheme, self.serving.address())
    }

    /// The URL of a repository that is not there.
    pub fn missing_url(&self) -> String {
        format!("http://{}/missing.git", self.serving.address())
    }
}

/// One file below the root; a path that would leave it is not found.
async fn file(State(root): State<PathBuf>, uri: Uri) -> Result<Vec<u8>, StatusCode> {
    let path = uri.path().trim_start_matches('/');
    if path.split('/').any(|part| part == ".." || part.is_empty()) {
        return Err(StatusCode::NOT_FOUND);
    }
    std::fs::read(root.join(path)).map_err(|_| StatusCode::NOT_FOUND)
}

fn make(folder: &Path, large: bool) -> Result<()> {
    let work = folder.join("work");
    std::fs::create_dir(&work).trying("make a temporary folder")?;
    git(&work, &["init", "--quiet", "--initial-branch=main"])?;
    for branch in ["other", "main"] {
        git(&work, &["checkout", "--quiet", "-B", branch])?;
        let text = format!("hello from {branch}\n");
        std::fs::write(work.join("README.md"), text).trying("write a file")?;
        if large && branch == "main" {
            let file = std::fs::File::create(work.join("large"));
            let attributes = "large working-tree-encoding=UTF-32LE\n";
            file.and_then(|file| file.set_len(64 << 20))
                .and_then(|()| std::fs::write(work.join(".gitattributes"), attributes))
                .trying("write a file")?;
        }
        git(&work, &["add", "."])?;
        git(&work, &["commit", "--quiet", "--message=Say hello"])?;
    }
    git(folder, &["clone", "--quiet", "--bare", "work", "hello.git"])?;
    git(&folder.join("hello.git"), &["update-server-info"])
}

/// Without the user's own configuration, which may sign or run hooks.
fn git(folder: &Path, args: &[&str]) -> Result<()> {
    let mut command = Command::new("git");
    command
        .current_dir(folder)
        .args(args)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null");
    for role in ["AUTHOR", "COMMITTER"] {
        command
            .env(format!("GIT_{role}_NAME"), "Podcradle")
            .env(format!("GIT_{role}_EMAIL"), "podcradle@example.invalid");
    }
    Running::start(&mut command)?
        .wait(WATCHDOG)?
        .with_code(0)
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_can_be_cloned_by_branch_and_what_is_missing_cannot() {
        let repository = Repository::serve(IpAddr::from([127, 0, 0, 1])).unwrap();
        let to = tempfile::tempdir().unwrap();
        let url = repository.url();
        git(
            to.path(),
            &["clone", "--quiet", "--branch=other", "--", &url, "x"],
        )
        .unwrap();
        let text = std::fs::read_to_string(to.path().join("x/README.md")).unwrap();
        assert_eq!(text, "hello from other\n");
        let url = repository.missing_url();
        let problem = git(to.path(), &["clone", "--quiet", "--", &url, "y"]).unwrap_err();
        assert!(problem.to_string().contains("not found"), "{problem}");
    }
}
