//! Flags and environment. In: what the command line and the environment say.
//! Out: a `Plan` in which everything is decided and checked.

use std::time::Duration;

use clap::Parser;
use thiserror::Error;

use crate::orphans::Orphans;
use crate::token::Token;

const ENVIRONMENT: &str = "\
Environment:
  <PREFIX>_HOST_TOKEN  the secret to dial back with (never an argument)
  <PREFIX>_HOST_ID     the id the server knows this host by
  <PREFIX>_HOST_NAME   a name for people, the id by default
  <PREFIX>_SERVER      used when --server is absent";

/// The reference host of a Podcradle sandbox: dials its server back, keeps a
/// heartbeat, does what it is told, and exits 78 when its token is refused.
#[derive(Debug, Parser)]
#[command(name = "host", version, after_help = ENVIRONMENT)]
pub struct Flags {
    /// Where to dial back to, by http or https
    #[arg(long, value_name = "URL")]
    server: Option<String>,

    /// What the names of the environment variables begin with
    #[arg(long, value_name = "PREFIX", default_value = "PODCRADLE")]
    env_prefix: String,

    /// Seconds between heartbeats
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    heartbeat: Duration,

    /// Seconds a single request may take
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    request_timeout: Duration,

    /// Leave this many orphans behind, right after the first dial-in
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=Orphans::MOST))]
    orphans: u32,

    /// Seconds each of those orphans lives
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = seconds_or_none)]
    orphan_lifetime: Duration,

    /// Exit 0 when stopped by SIGTERM, instead of dying of it (143)
    #[arg(long)]
    exit_zero_on_term: bool,

    /// Become the process in the middle that forks the orphans and goes away.
    #[arg(long, hide = true)]
    internal_leave_orphans: bool,
}

impl Flags {
    /// The orphans to leave when this process is only the one in the middle.
    pub fn leave_orphans(&self) -> Option<Orphans> {
        self.internal_leave_orphans.then_some(Orphans {
            count: self.orphans,
            lifetime: self.orphan_lifetime,
        })
    }
}

/// Everything the host was told, checked.
pub struct Plan {
    pub server: String,
    pub id: String,
    pub name: String,
    pub token: Token,
    /// The variable the token came in, which no command may inherit.
    pub token_variable: String,
    pub heartbeat: Duration,
    pub request_timeout: Duration,
    pub orphans: Option<Orphans>,
    pub exit_zero_on_term: bool,
}

/// What is wrong with the command line or the environment.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Problem {
    #[error("--server is not set, and neither is {0}: give the address to dial back to")]
    NoServer(String),
    #[error("server {0:?} is no address: it must be http://HOST[:PORT][/PATH] or https://…")]
    BadServer(String),
    #[error("{0} is not set: it must hold the id the server knows this host by")]
    NoId(String),
    #[error("{variable} is {value:?}: an id is made of A-Z a-z 0-9 . _ ~ -")]
    BadId { variable: String, value: String },
    #[error("{0} is not set: it must hold the token to dial back with")]
    NoToken(String),
    #[error("{0} holds no usable token: it must be one word of printable ASCII")]
    BadToken(String),
    #[error("--env-prefix {0:?} cannot begin a variable's name: use A-Z 0-9 _, no digit first")]
    BadPrefix(String),
}

impl Plan {
    /// Decides flags against environment: a flag wins.
    pub fn resolve(
        flags: Flags,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Plan, Problem> {
        let prefix = &flags.env_prefix;
        if !is_prefix(prefix) {
            return Err(Problem::BadPrefix(prefix.clone()));
        }
        let set = |name: &String| environment(name).filter(|value| !value.is_empty());

        let variable = format!("{prefix}_SERVER");
        let server = flags.server.or_else(|| set(&variable));
        let server = server.ok_or(Problem::NoServer(variable))?;
        if !is_address(&server) {
            return Err(Problem::BadServer(server));
        }

        let variable = format!("{prefix}_HOST_ID");
        let id = set(&variable).ok_or_else(|| Problem::NoId(variable.clone()))?;
        if !is_id(&id) {
            let value = id;
            return Err(Problem::BadId { variable, value });
        }

        let token_variable = format!("{prefix}_HOST_TOKEN");
        let token = set(&token_variable).ok_or_else(|| Problem::NoToken(token_variable.clone()))?;
        let token = Token::new(&token).ok_or_else(|| Problem::BadToken(token_variable.clone()))?;

        Ok(Plan {
            server: server.trim_end_matches('/').to_owned(),
            name: set(&format!("{prefix}_HOST_NAME")).unwrap_or_else(|| id.clone()),
            id,
            token,
            token_variable,
            heartbeat: flags.heartbeat,
            request_timeout: flags.request_timeout,
            orphans: (flags.orphans > 0).then_some(Orphans {
                count: flags.orphans,
                lifetime: flags.orphan_lifetime,
            }),
            exit_zero_on_term: flags.exit_zero_on_term,
        })
    }
}

/// A name a shell can export, and clear of surprises in capitals.
fn is_prefix(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    !text.is_empty() && text.bytes().all(allowed) && !text.as_bytes()[0].is_ascii_digit()
}

/// The unreserved characters of RFC 3986: the id stands in a path as it is.
/// Dots alone would be folded away by whoever normalises that path.
fn is_id(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._~-".contains(&byte);
    text.bytes().all(allowed) && text.bytes().any(|byte| byte != b'.')
}

/// An http(s) address without user, query or fragment; the rest is the
/// client's to resolve.
fn is_address(text: &str) -> bool {
    let Ok(uri) = text.parse::<ureq::http::Uri>() else {
        return false;
    };
    let plain = uri.authority().is_some_and(|at| !at.as_str().contains('@'));
    matches!(uri.scheme_str(), Some("http" | "https"))
        && plain
        && uri.query().is_none()
        && !text.contains('#')
}

fn seconds(text: &str) -> Result<Duration, String> {
    match seconds_or_none(text) {
        Ok(Duration::ZERO) => Err("must be more than 0".to_owned()),
        other => other,
    }
}

fn seconds_or_none(text: &str) -> Result<Duration, String> {
    const MOST: f64 = 86_400.0;
    match text.parse::<f64>() {
        Ok(value) if (0.0..=MOST).contains(&value) => Ok(Duration::from_secs_f64(value)),
        _ => Err(format!("must be a number of seconds from 0 to {MOST}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(flags: &[&str], environment: &[(&str, &str)]) -> Result<Plan, Problem> {
        let flags = Flags::parse_from([&["host"], flags].concat());
        let find = |name: &str| environment.iter().find(|(key, _)| *key == name);
        Plan::resolve(flags, |name| {
            find(name).map(|(_, value)| (*value).to_owned())
        })
    }

    const GOOD: &[(&str, &str)] = &[
        ("PODCRADLE_SERVER", "http://10.0.0.1:80/base/"),
        ("PODCRADLE_HOST_ID", "h-1"),
        ("PODCRADLE_HOST_TOKEN", "t"),
    ];

    #[test]
    fn environment_alone_is_enough_and_the_name_defaults_to_the_id() {
        let plan = resolve(&[], GOOD).ok().unwrap();
        assert_eq!(plan.server, "http://10.0.0.1:80/base");
        assert_eq!((plan.id.as_str(), plan.name.as_str()), ("h-1", "h-1"));
    }

    #[test]
    fn the_flag_wins_over_the_environment() {
        let plan = resolve(&["--server", "https://other"], GOOD).ok().unwrap();
        assert_eq!(plan.server, "https://other");
    }

    #[test]
    fn another_prefix_reads_other_variables() {
        let problem = resolve(&["--env-prefix", "OMNIGENT", "--server", "http://a"], GOOD);
        assert_eq!(
            problem.err(),
            Some(Problem::NoId("OMNIGENT_HOST_ID".to_owned()))
        );
    }

    #[test]
    fn a_bad_server_is_named() {
        for server in [
            "ftp://a",
            "a:80",
            "http://u:p@a",
            "http://a?q",
            "http://a#f",
            "http://",
        ] {
            let problem = resolve(&["--server", server], GOOD).err();
            assert_eq!(problem, Some(Problem::BadServer(server.to_owned())));
        }
    }

    #[test]
    fn an_id_that_would_change_the_path_is_refused() {
        for id in ["a/b", "..", "a b", "a%2f"] {
            let environment = [("PODCRADLE_HOST_ID", id), GOOD[0], GOOD[2]];
            assert!(matches!(
                resolve(&[], &environment).err(),
                Some(Problem::BadId { .. })
            ));
        }
    }

    #[test]
    fn a_missing_token_names_its_variable() {
        let problem = resolve(&[], &GOOD[..2]).err();
        assert_eq!(
            problem,
            Some(Problem::NoToken("PODCRADLE_HOST_TOKEN".to_owned()))
        );
    }

    #[test]
    fn seconds_are_bounded_and_may_have_fractions() {
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        for text in ["0", "-1", "nan", "inf", "1e9", "x"] {
            assert!(seconds(text).is_err(), "{text:?} was taken");
        }
    }
}
