//! The command line: `args` reads it, one file a verb carries it out, `exit`
//! says how it went. Results go to stdout, everything else to stderr.

mod args;
mod attach;
mod config;
mod exit;
mod extend;
mod flags;
mod launch;
mod logs;
mod output;
mod progress;
mod render;
mod results;
mod say;
mod sessions;
mod settings;
mod shared;
mod signals;
mod spec;
mod tokens;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;
use podcradle_launcher::cluster::{ConfigError, InCluster, Source};
use podcradle_launcher::spec::environment::Environment;
use podcradle_launcher::{Failure, Launcher, Reason};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use args::{Cli, Command};
use exit::Failed;

/// Time for a verb other than launch when `--timeout` does not say.
const CALLS: Duration = Duration::from_mins(1);

/// Runs the program.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return args::refuse(&error),
    };
    if matches!(&cli.command, Command::Launch(args) if args.progress == progress::Form::Json) {
        say::be_json();
    }
    logging(cli.global.verbose);
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return Failed::unexpected(format!("no runtime: {error}")).report(),
    };
    match runtime.block_on(run(cli)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => failed.report(),
    }
}

async fn run(cli: Cli) -> Result<(), Failed> {
    let global = settings::Global::of(&cli.global, Environment::of_process());
    let has_spec = matches!(
        &cli.command,
        Command::Launch(_)
            | Command::Render(_)
            | Command::Config(_)
            | Command::Session(args::Session::Create(_))
    );
    if !has_spec {
        global.check()?;
    }
    match cli.command {
        Command::Reserve(reserve) => sessions::reserve(&reserve, global.output),
        Command::Launch(args) => {
            let launched = launch::launch(&global, *args).await;
            launched.map_err(|failed| failed.with_data(global.output))
        }
        Command::Render(args) => {
            let by = args.dry_run.unwrap_or(args::DryRun::Client);
            let rendered = render::render(&global, &args.wanted, by).await;
            rendered.map_err(|failed| failed.with_data(global.output))
        }
        Command::Config(wanted) => config::config(&global, &wanted),
        Command::Schema => output::print(&podcradle_launcher::spec::schema::text()),
        Command::List => sessions::list(&global).await,
        Command::Status { name } => sessions::status(&global, &name).await,
        Command::Extend(args) => extend::extend(&global, &args).await,
        Command::Logs(args) => logs::logs(&global, &args).await,
        Command::Delete(args) => sessions::delete(&global, &args).await,
        Command::Session(command) => shared::session(&global, command).await,
    }
}

fn connect(global: &args::Global) -> Result<Launcher, Failed> {
    let source = Source {
        kubeconfig: global.kubeconfig.clone(),
        context: global.context.clone(),
        namespace: global.namespace.clone(),
        in_cluster: match global.in_cluster {
            args::InCluster::Auto => InCluster::Auto,
            args::InCluster::Always => InCluster::Always,
            args::InCluster::Never => InCluster::Never,
        },
        log_plugins: say::is_json(),
        plugin_time: global.timeout,
    };
    Launcher::start(&source).map_err(|error| match error {
        ConfigError::TimedOut { .. } => Failed::of(Failure::new(
            Reason::TimedOut,
            error.to_string(),
            "see what the exec plugin waits for; it has --timeout, and a minute at most",
        )),
        other => Failed::input(other.to_string()),
    })
}

fn timeout(global: &args::Global) -> Duration {
    global.timeout.unwrap_or(CALLS)
}

/// Our own lines, and with -v our reasons. The client's own log shows bodies
/// it could not read, and one of them may be a Secret: it stays silent.
fn logging(verbose: u8) {
    let (ours, others) = match verbose {
        0 => (LevelFilter::WARN, LevelFilter::WARN),
        1 => (LevelFilter::DEBUG, LevelFilter::WARN),
        _ => (LevelFilter::TRACE, LevelFilter::INFO),
    };
    let silent = ["kube_client", "kube_core", "hyper", "tower", "rustls"];
    let filter = Targets::new()
        .with_default(others)
        .with_target("podcradle", ours)
        .with_targets(silent.map(|target| (target, LevelFilter::OFF)));
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(|| say::Log)
        // It would panic where stderr is gone.
        .log_internal_errors(false)
        .without_time();
    tracing_subscriber::registry()
        .with(lines.with_filter(filter))
        .init();
}
