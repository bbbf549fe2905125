//! The tokens of a launch: made and written to files, read from one, or told
//! to nobody.

use std::path::{Path, PathBuf};

use podcradle_launcher::token::{Token, TokenError};
use podcradle_launcher::{Failure, Outcome, Reason};

use super::args::Launch;
use super::exit::Failed;
use super::spec::Named;

/// Where the tokens are that this process wrote, in the order of the sandboxes.
pub struct Written(Vec<Option<PathBuf>>);

/// A token for each sandbox. Files are written before a server could meet a
/// host that has the token in them.
pub fn tokens(args: &Launch, wanted: &[Named]) -> Result<(Vec<Token>, Written), Failed> {
    let mut tokens = Vec::new();
    let mut written = Written(Vec::new());
    for named in wanted {
        match token(args, named, wanted.len() > 1) {
            Ok((token, file)) => {
                tokens.push(token);
                written.0.push(file);
            }
            Err(failed) => {
                written.forget();
                return Err(failed);
            }
        }
    }
    Ok((tokens, written))
}

fn token(args: &Launch, named: &Named, many: bool) -> Result<(Token, Option<PathBuf>), Failed> {
    let input = |error: TokenError| Failed::input(error.to_string());
    if let Some(path) = &args.token_file {
        if many {
            return Err(Failed::input(format!(
                "--token-file {:?}: many sandboxes do not share one token; --token-out DIR makes one for each",
                path.display()
            )));
        }
        let token = if path == Path::new("-") {
            Token::read("standard input", std::io::stdin())
        } else {
            Token::read_file(path)
        };
        return Ok((token.map_err(input)?, None));
    }
    let Some(path) = &args.token_out else {
        return Ok((Token::untold(), None));
    };
    let path = if many || path.is_dir() {
        std::fs::create_dir_all(path).map_err(|error| {
            let path = path.display();
            Failed::input(format!(
                "--token-out {path}: must be a directory for many sandboxes: {error}"
            ))
        })?;
        path.join(&named.spec.sandbox)
    } else {
        path.clone()
    };
    // With a launch id, what is there is of an earlier attempt at the same launch.
    if named.again && path.is_file() {
        return Ok((Token::read_file(&path).map_err(input)?, None));
    }
    let token = Token::random();
    token.write_file(&path).map_err(input)?;
    Ok((token, Some(path)))
}

impl Written {
    /// Takes all files away: nothing was launched.
    pub fn forget(&self) {
        self.0.iter().flatten().for_each(|path| forget(path));
    }

    /// Takes away the file of a sandbox that did not come to be; the file of one
    /// that got another name follows it.
    pub fn settle(&self, which: usize, wanted: &str, outcome: &Outcome) -> Result<(), Failed> {
        let Some(Some(path)) = self.0.get(which) else {
            return Ok(());
        };
        let name = match outcome {
            Outcome::Failed(failure) if is_useless(failure) => {
                forget(path);
                return Ok(());
            }
            Outcome::Failed(failure) => &failure.sandbox,
            Outcome::Launched(launched) => &launched.sandbox,
        };
        if name == wanted || !path.ends_with(wanted) {
            return Ok(());
        }
        let to = path.with_file_name(name);
        std::fs::rename(path, &to).map_err(|error| {
            let (path, to) = (path.display(), to.display());
            Failed::unexpected(format!("{path}: cannot be renamed to {to}: {error}"))
        })
    }
}

fn forget(path: &Path) {
    // A pipe or a terminal stays.
    if path.is_file() {
        let _ = std::fs::remove_file(path);
    }
}

/// Whether no sandbox has the token of this launch.
fn is_useless(failure: &Failure) -> bool {
    failure.reason != Reason::TakenOver && failure.left.is_empty()
}
