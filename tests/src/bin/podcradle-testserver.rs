//! `podcradle-testserver`: the server a sandbox's host dials back to, for
//! demos and tests. Checks id and token, prints one JSON object a line for
//! everything that happens, and hands out orders given to its admin endpoints.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use podcradle_tests::testserver::{Digest, Event, Options, TestServer, digest, parse_digest};

/// A server for hosts to dial back to. Prints what happens as JSON lines.
#[derive(Debug, Parser)]
#[command(name = "podcradle-testserver")]
struct Flags {
    /// Where to listen; port 0 is any free one, printed when it is known
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    /// Expect a host by its id and the SHA-256 of its token (repeatable)
    #[arg(long, value_name = "ID=SHA256", value_parser = by_digest)]
    expect: Vec<(String, Digest)>,

    /// Expect a host by its id and a file with its token (repeatable)
    #[arg(long, value_name = "ID=FILE", value_parser = by_file)]
    expect_file: Vec<(String, Digest)>,

    /// A file with the token of the endpoints below /v1/admin; none without it
    #[arg(long, value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
}

fn by_digest(text: &str) -> Result<(String, Digest), String> {
    let (id, sha256) = text.split_once('=').ok_or("must be ID=SHA256")?;
    let digest = parse_digest(sha256).ok_or("the part after = must be 64 hexadecimal digits")?;
    Ok((id.to_owned(), digest))
}

fn by_file(text: &str) -> Result<(String, Digest), String> {
    let (id, file) = text.split_once('=').ok_or("must be ID=FILE")?;
    Ok((id.to_owned(), digest_of_file(&PathBuf::from(file))?))
}

/// A trailing newline is not part of a token.
fn digest_of_file(path: &PathBuf) -> Result<Digest, String> {
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    match text.trim_end_matches(['\n', '\r']) {
        "" => Err(format!(
            "{}: is empty, and must hold a token",
            path.display()
        )),
        token => Ok(digest(token)),
    }
}

fn print(event: &Event) {
    if let Ok(line) = serde_json::to_string(event) {
        // A reader that went away is no reason to end: hosts may still need us.
        let _ = writeln!(std::io::stdout().lock(), "{line}");
    }
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    match serve(flags) {
        Ok(never) => match never {},
        Err(problem) => {
            eprintln!("podcradle-testserver: {problem}");
            ExitCode::FAILURE
        }
    }
}

/// Serves until it is killed.
fn serve(flags: Flags) -> Result<std::convert::Infallible, String> {
    let admin = flags
        .admin_token_file
        .as_ref()
        .map(digest_of_file)
        .transpose()?;
    let hosts: Vec<_> = flags.expect.into_iter().chain(flags.expect_file).collect();
    if hosts.is_empty() && admin.is_none() {
        return Err(
            "nobody could ever dial in: give --expect, --expect-file or --admin-token-file"
                .to_owned(),
        );
    }
    let options = Options {
        admin,
        sink: Some(Box::new(print)),
    };
    let server = TestServer::start(flags.listen, options).map_err(|error| {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
        format!("{error}{}", cause.unwrap_or_default())
    })?;
    for (id, token) in hosts {
        server.expect(&id, token);
    }
    loop {
        std::thread::park();
    }
}
