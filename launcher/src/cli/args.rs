//! What may be said on the command line.

#![allow(clippy::doc_markdown, reason = "these comments are the help text")]
#![allow(clippy::struct_field_names, reason = "a field is named as its flag")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use podcradle_launcher::spec::time;

use super::flags::{SessionFlags, SpecFlags};
pub use super::settings::Global;

/// Launch agent hosts in Kubernetes pods, and leave nothing behind.
#[derive(Parser, Debug)]
#[command(
    name = "podcradle",
    version,
    max_term_width = 100,
    subcommand_required = true,
    args_override_self = true
)]
pub struct Cli {
    #[command(flatten)]
    pub global: GlobalArgs,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Args, Debug, Default)]
pub struct GlobalArgs {
    /// Namespace of the sandboxes [default: the profile's, or the context's]
    #[arg(short, long, global = true, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Context of the kubeconfig [default: its current one]
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// Kubeconfig [default: $KUBECONFIG, the pod's own account, ~/.kube/config]
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Whether the account of the pod this runs in counts [default: auto]
    #[arg(long, global = true, value_name = "WHEN", value_parser = Word::<InCluster>::default())]
    pub in_cluster: Option<String>,
    /// How results are printed [default: table]
    #[arg(short, long, global = true, value_name = "FORMAT", value_parser = Word::<Output>::default())]
    pub output: Option<String>,
    /// How long it may take in all, such as 90s or 5m [default: launch 15m, else 60s]
    #[arg(long, global = true, value_name = "TIME")]
    pub timeout: Option<String>,
    /// Whose defaults and variables: default or omnigent [default: default]
    #[arg(long, global = true, value_name = "NAME")]
    pub profile: Option<String>,
    /// Configuration file [default: ~/.config/podcradle/config.yaml]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Say more on stderr (twice: even more)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// Reads any word, for help and completions one of a few: one that is none of
/// them is told with whatever else is wrong.
#[derive(Clone)]
struct Word<W>(std::marker::PhantomData<W>);

impl<W> Default for Word<W> {
    fn default() -> Self {
        Self(std::marker::PhantomData)
    }
}

impl<W: ValueEnum + Clone + Send + Sync + 'static> TypedValueParser for Word<W> {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let words = W::value_variants().iter();
        Some(Box::new(words.filter_map(ValueEnum::to_possible_value)))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum InCluster {
    /// When no kubeconfig is named, and this is a pod
    Auto,
    /// In any case, KUBECONFIG or not
    Always,
    /// Never, although this is a pod
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people
    Table,
    /// For people, with more columns where there are some
    Wide,
    /// For programs
    Json,
    /// For programs and people
    Yaml,
    /// Names alone
    Name,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DryRun {
    /// Nothing is asked
    Client,
    /// The API server is asked about each object, and makes none
    Server,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Give a sandbox's name before anything exists
    Reserve(Reserve),
    /// Launch a sandbox and wait until its host runs
    Launch(Box<Launch>),
    /// Print the objects a launch would make
    Render(Box<Render>),
    /// Show what a launch would want, and where each value comes from
    Config(Box<Wanted>),
    /// Print the JSON Schema of a spec file
    Schema,
    /// List the sandboxes of the namespace
    List,
    /// Show one sandbox, and why its host ended
    Status {
        /// Name of the sandbox
        name: String,
    },
    /// Print the host's log
    Logs(Logs),
    /// Move the expiry of a sandbox, or of a shared session
    Extend(Extend),
    /// Delete sandboxes and wait until they are gone
    Delete(Delete),
    /// Shared sessions: many sandboxes that end together
    #[command(subcommand)]
    Session(Session),
}

#[derive(Subcommand, Debug)]
pub enum Session {
    /// Create a shared session, for launch --session
    Create(Box<SessionCreate>),
    /// List the shared sessions of the namespace
    List,
    /// Delete shared sessions with all their sandboxes, and wait until they are gone
    Delete(Delete),
}

#[derive(Args, Debug)]
pub struct Delete {
    /// Names of those to delete
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
    /// One that is not there is no failure
    #[arg(long)]
    pub ignore_not_found: bool,
}

#[derive(Args, Debug)]
pub struct SessionCreate {
    /// Name of the session [default: a generated one]
    #[arg(value_name = "NAME", conflicts_with = "name")]
    pub session: Option<String>,
    /// Label of a generated name [default: session]
    #[arg(long, value_name = "LABEL")]
    pub name: Option<String>,
    #[command(flatten)]
    pub fields: SessionFlags,
}

#[derive(Args, Debug)]
pub struct Reserve {
    /// Part of the name that is yours, at most 40 characters
    pub label: String,
}

#[derive(Args, Debug)]
pub struct Launch {
    #[command(flatten)]
    pub wanted: Wanted,
    /// So many sandboxes, under generated names
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub count: Option<u16>,
    /// So many launches at a time
    #[arg(long, value_name = "N", default_value = "50", value_parser = clap::value_parser!(u16).range(1..))]
    pub concurrency: u16,
    /// Stay until the host has ended, end as it did, and leave nothing
    #[arg(long, conflicts_with_all = ["owner", "ttl", "count"])]
    pub attach: bool,
    /// How progress is shown, on stderr
    #[arg(long, value_name = "FORM", default_value = "auto")]
    pub progress: super::progress::Form,
    /// Make the token and write it to this new file (mode 0600); for many
    /// sandboxes a directory, with a file named after each
    #[arg(long, value_name = "FILE", conflicts_with = "token_file")]
    pub token_out: Option<PathBuf>,
    /// Take the token from this file; - is standard input
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Launch nothing: print the objects, or have the API server look at them
    #[arg(long, value_name = "BY")]
    pub dry_run: Option<DryRun>,
}

#[derive(Args, Debug)]
pub struct Render {
    #[command(flatten)]
    pub wanted: Wanted,
    /// Who looks at them [default: client]
    #[arg(long, value_name = "BY")]
    pub dry_run: Option<DryRun>,
}

/// What is wanted: a file, and what is said over it.
#[derive(Args, Debug)]
pub struct Wanted {
    /// Spec file in YAML, of one sandbox or many; - is standard input
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Label of a generated name [default: sandbox]
    #[arg(long, value_name = "LABEL", conflicts_with = "sandbox")]
    pub name: Option<String>,
    #[command(flatten)]
    pub fields: SpecFlags,
}

#[derive(Args, Debug)]
pub struct Extend {
    /// Name of the sandbox, or of the shared session
    pub name: String,
    /// From now, a time such as 24h; none takes the expiry away
    #[arg(long, value_name = "TIME", value_parser = ttl)]
    pub ttl: Ttl,
}

/// A time to live, or none.
#[derive(Clone, Copy, Debug)]
pub struct Ttl(pub Option<Duration>);

fn ttl(text: &str) -> Result<Ttl, String> {
    if text == "none" {
        return Ok(Ttl(None));
    }
    match time::parse(text) {
        Ok(ttl) if !time::is_ttl(ttl) => Err(time::TTL_RULE.to_owned()),
        Ok(time) => Ok(Ttl(Some(time))),
        Err(rule) => Err(format!("{rule}, or none")),
    }
}

#[derive(Args, Debug)]
pub struct Logs {
    /// Name of the sandbox
    pub name: String,
    /// Go on as the log grows
    #[arg(short, long)]
    pub follow: bool,
    /// host or workspace-prep
    #[arg(short, long, default_value = "host", value_name = "NAME", value_parser = ["host", "workspace-prep"])]
    pub container: String,
    /// Last lines only
    #[arg(long, value_name = "LINES", value_parser = clap::value_parser!(i64).range(0..))]
    pub tail: Option<i64>,
}

/// Prints clap's help, or its complaint as one line.
pub fn refuse(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind;
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    ) {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if let Some(line) = negative(error, std::env::args()) {
        return super::exit::Failed::input(line).report();
    }
    let text = error.to_string();
    let mut lines = text.lines().map(str::trim);
    let first = lines
        .next()
        .unwrap_or_default()
        .trim_start_matches("error: ")
        .to_owned();
    let mut line = first;
    for more in lines.take_while(|l| !l.starts_with("Usage:") && !l.starts_with("For more")) {
        if let Some(tip) = more.strip_prefix("tip: ") {
            line.push_str("; ");
            line.push_str(tip);
        } else if !more.is_empty() {
            line.push(' ');
            line.push_str(more);
        }
    }
    super::exit::Failed::input(line).report()
}

/// What to say of a flag's value that clap has taken for a flag, as it begins
/// with a dash.
fn negative(error: &clap::Error, args: impl Iterator<Item = String>) -> Option<String> {
    use clap::error::{ContextKind, ContextValue};
    let Some(ContextValue::String(taken)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let number = taken
        .strip_prefix('-')?
        .starts_with(|c: char| c.is_ascii_digit());
    let args: Vec<_> = args.collect();
    let flag_and_value = args.windows(2).find(|two| two[1].starts_with(taken));
    let [flag, value] = flag_and_value.filter(|_| number)? else {
        return None;
    };
    Some(format!("{flag} {value:?}: must not be negative"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_value_below_zero_is_told_with_its_flag() {
        let said = |last: [&str; 2]| {
            let args = [&["podcradle", "launch"][..], &last].concat();
            let error = Cli::try_parse_from(&args).unwrap_err();
            negative(&error, args.iter().map(|&arg| arg.to_owned()))
        };
        for flag in ["--timeout", "--ttl", "--grace"] {
            let line = format!("{flag} \"-1s\": must not be negative");
            assert_eq!(said([flag, "-1s"]), Some(line));
        }
        assert_eq!(said(["--image", "-x"]), None);
    }

    #[test]
    fn an_expiry_moves_by_what_a_launch_may_ask_for() {
        for (text, right) in [("1m", true), ("none", true), ("1s", false), ("20y", false)] {
            let args = ["podcradle", "extend", "a", "--ttl", text];
            assert_eq!(Cli::try_parse_from(args).is_ok(), right, "{text}");
        }
    }
}
