//! What may be said on the command line.

#![allow(clippy::doc_markdown, reason = "these comments are the help text")]
#![allow(clippy::struct_field_names, reason = "a field is named as its flag")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use podcradle_launcher::spec::time::parse as duration;

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
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Args, Debug)]
pub struct Global {
    /// Namespace of the sandboxes [default: the context's]
    #[arg(
        short,
        long,
        global = true,
        value_name = "NAME",
        env = "PODCRADLE_NAMESPACE"
    )]
    pub namespace: Option<String>,
    /// Context of the kubeconfig [default: its current one]
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// Kubeconfig [default: $KUBECONFIG, the pod's own account, ~/.kube/config]
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// How results are printed
    #[arg(
        short,
        long,
        global = true,
        value_name = "FORMAT",
        default_value = "table"
    )]
    pub output: Output,
    /// How long it may take in all, such as 90s or 5m [default: launch 15m, else 60s]
    #[arg(long, global = true, value_name = "TIME", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// Say more on stderr (twice: even more)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people
    Table,
    /// For programs
    Json,
    /// Names alone
    Name,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Give a sandbox's name before anything exists
    Reserve(Reserve),
    /// Launch a sandbox and wait until its host runs
    Launch(Box<Launch>),
    /// List the sandboxes of the namespace
    List,
    /// Show one sandbox, and why its host ended
    Status {
        /// Name of the sandbox
        name: String,
    },
    /// Print the host's log
    Logs(Logs),
    /// Delete sandboxes and wait until they are gone
    Delete {
        /// Names of the sandboxes
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
}

#[derive(Args, Debug)]
pub struct Reserve {
    /// Part of the name that is yours, at most 40 characters
    pub label: String,
}

#[derive(Args, Debug)]
pub struct Launch {
    /// Label of a generated name [default: sandbox]
    #[arg(long, value_name = "LABEL", conflicts_with = "sandbox")]
    pub name: Option<String>,
    /// Exact name, as `reserve` gave it
    #[arg(long, value_name = "NAME")]
    pub sandbox: Option<String>,
    /// Idempotency key, as `reserve` gave it [default: random]
    #[arg(long, value_name = "ID")]
    pub launch_id: Option<String>,
    /// Image of the host, with podcradle-init in it
    #[arg(long, value_name = "REF", env = "PODCRADLE_IMAGE")]
    pub image: String,
    /// Image of workspace-prep, when the host's has no git
    #[arg(long, value_name = "REF")]
    pub prep_image: Option<String>,
    /// Always, IfNotPresent or Never
    #[arg(long, value_name = "POLICY")]
    pub image_pull_policy: Option<String>,
    /// Directory of podcradle-init in the image [default: /usr/local/bin]
    #[arg(long, value_name = "DIR")]
    pub init_dir: Option<String>,
    /// URL the host dials back
    #[arg(long, value_name = "URL")]
    pub server: Option<String>,
    /// Identity the host reports [default: the sandbox's name]
    #[arg(long, value_name = "ID")]
    pub host_id: Option<String>,
    /// Name the host reports [default: the sandbox's name]
    #[arg(long, value_name = "NAME")]
    pub host_name: Option<String>,
    /// Prefix of the host's variables [default: PODCRADLE]
    #[arg(long, value_name = "PREFIX")]
    pub env_prefix: Option<String>,
    /// Repository to clone into the workspace
    #[arg(long, value_name = "URL")]
    pub repo: Option<String>,
    /// Branch or tag of the repository
    #[arg(long, value_name = "BRANCH", requires = "repo")]
    pub branch: Option<String>,
    /// Directory of the clone below the workspace [default: from the URL]
    #[arg(long, value_name = "DIR", requires = "repo")]
    pub repo_dir: Option<String>,
    /// Pass a variable of this environment through to the host (repeatable)
    #[arg(long, value_name = "NAME")]
    pub env: Vec<String>,
    /// Operator's Secret for the environment (GIT_TOKEN, for instance)
    #[arg(long, value_name = "NAME")]
    pub credentials_secret: Option<String>,
    /// ServiceAccount of the Pod [default: podcradle-sandbox]
    #[arg(long, value_name = "NAME")]
    pub service_account: Option<String>,
    /// Label that the node must have (repeatable)
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    pub node_selector: Vec<(String, String)>,
    /// CPU to reserve [default: 500m]
    #[arg(long, value_name = "QUANTITY")]
    pub cpu_request: Option<String>,
    /// Memory to reserve [default: 1Gi]
    #[arg(long, value_name = "QUANTITY")]
    pub memory_request: Option<String>,
    /// CPU at most [default: 2]
    #[arg(long, value_name = "QUANTITY")]
    pub cpu_limit: Option<String>,
    /// Memory at most [default: 4Gi]
    #[arg(long, value_name = "QUANTITY")]
    pub memory_limit: Option<String>,
    /// When the session expires, from its creation: a time such as 24h, or none [default: 24h]
    #[arg(long, value_name = "TIME", value_parser = ttl)]
    pub ttl: Option<Ttl>,
    /// End of the compute in any case, such as 7d [default: 7d]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub max_lifetime: Option<Duration>,
    /// Make the token and write it to this new file (mode 0600)
    #[arg(long, value_name = "FILE", conflicts_with = "token_file")]
    pub token_out: Option<PathBuf>,
    /// Take the token from this file; - is standard input
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Keep the Pod of a failed launch for an hour (never its token)
    #[arg(long)]
    pub keep_on_failure: bool,
    /// The host's command line [default: host, with --server URL when given]
    #[arg(last = true, value_name = "HOST")]
    pub host: Vec<String>,
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

/// A time to live, or none.
#[derive(Clone, Copy, Debug)]
pub struct Ttl(pub Option<Duration>);

fn ttl(text: &str) -> Result<Ttl, String> {
    if text == "none" {
        Ok(Ttl(None))
    } else {
        duration(text).map(|time| Ttl(Some(time)))
    }
}

fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("must be KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_session_may_be_told_to_live_for_ever() {
        assert!(matches!(ttl("none"), Ok(Ttl(None))));
        assert!(ttl("1h").is_ok() && ttl("never").is_err());
    }
}
