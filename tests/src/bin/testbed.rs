//! `testbed`: a real Kubernetes on this machine, for tests and for a try.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use podcradle_tests::testbed::{self, Error, Layout, Node, Progress};

/// Boots, describes and removes a single-node Kubernetes with a containerd, a
/// builder and a registry of its own, beside whatever else runs here.
#[derive(Parser)]
#[command(name = "testbed")]
struct Arguments {
    /// Which instance; any number run side by side.
    #[arg(
        long,
        global = true,
        env = "PODCRADLE_TESTBED",
        default_value = "default"
    )]
    name: String,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Build what is not built yet and boot, unless it runs already.
    Up {
        /// Have missing Debian packages installed by apt-get first.
        #[arg(long)]
        install: bool,
    },
    /// Stop it and leave nothing behind but the cache of built programs.
    Down,
    /// Say what runs and where everything is; exit code 3 when it is not up.
    Status {
        /// For people or for programs.
        #[arg(short, long, value_enum, default_value_t = Output::Table)]
        output: Output,
    },
    /// Import image archives (docker or OCI), so that pods can use them.
    Load {
        /// The archives.
        #[arg(required = true, value_name = "IMAGE.tar")]
        archives: Vec<PathBuf>,
        /// Which platform of an index to unpack, for example linux/arm64.
        #[arg(long)]
        platform: Option<String>,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    Table,
    Json,
    /// Lines for a shell to `eval`.
    Env,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(io::stderr(), "testbed: {}", testbed::chain(&error));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let layout = Layout::new(&arguments.name)?;
    let progress = Progress::new();
    match &arguments.verb {
        Verb::Up { install } => {
            let node = testbed::up(&layout, *install, &progress)?;
            print(&format!(
                "export KUBECONFIG={}\n",
                node.kubeconfig.display()
            ));
        }
        Verb::Down => {
            testbed::down(&layout, &progress)?;
            progress.done(&format!("test bed {} is down", layout.name()));
        }
        Verb::Load { archives, platform } => {
            print(&testbed::load(&layout, archives, platform.as_deref())?);
        }
        Verb::Status { output } => return Ok(status(&layout, *output)),
    }
    Ok(ExitCode::SUCCESS)
}

fn status(layout: &Layout, output: Output) -> ExitCode {
    let Some(node) = testbed::status(layout) else {
        let _ = writeln!(io::stderr(), "testbed: {} is not up", layout.name());
        return ExitCode::from(3);
    };
    let alive = node.is_alive();
    match output {
        Output::Json => {
            let mut value = serde_json::json!(node);
            value["running"] = alive.into();
            for (daemon, value) in node
                .daemons
                .iter()
                .zip(value["daemons"].as_array_mut().into_iter().flatten())
            {
                value["alive"] = daemon.is_alive().into();
            }
            print(&format!("{value:#}\n"));
        }
        Output::Table => print(&table(&node, alive)),
        Output::Env => print(&env(&node)),
    }
    if alive {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(3)
    }
}

/// What kubectl, buildx and `podcradle-images` read from the environment.
fn env(node: &Node) -> String {
    let quoted = |text: String| format!("'{}'", text.replace('\'', r"'\''"));
    let builder = format!("{} --builder {}", node.buildx.display(), node.builder);
    let lines = [
        ("KUBECONFIG", node.kubeconfig.display().to_string()),
        ("BUILDX_CONFIG", node.buildx_config.display().to_string()),
        ("PODCRADLE_BUILDX", builder),
    ];
    let lines = lines.map(|(name, value)| format!("{name}={}\n", quoted(value)));
    lines.concat()
}

fn table(node: &Node, alive: bool) -> String {
    let state = if alive {
        "running"
    } else {
        "broken: `testbed up` boots it anew"
    };
    let mut lines = vec![
        ("test bed", format!("{} ({state})", node.name)),
        ("kubeconfig", node.kubeconfig.display().to_string()),
        ("API server", node.server.clone()),
        ("node", format!("{} ({})", node.node_name, node.node_ip)),
        ("kubectl", node.kubectl.display().to_string()),
        (
            "ctr",
            format!(
                "{} -a {} -n {}",
                node.ctr.display(),
                node.containerd_socket.display(),
                node.containerd_namespace
            ),
        ),
        (
            "buildx",
            format!(
                "BUILDX_CONFIG={} {} --builder {}",
                node.buildx_config.display(),
                node.buildx.display(),
                node.builder
            ),
        ),
        ("registry", format!("{} (plain HTTP)", node.registry)),
        ("audit log", node.audit_log.display().to_string()),
        ("logs", node.log_dir.display().to_string()),
    ];
    lines.extend(node.daemons.iter().map(|daemon| {
        let state = if daemon.is_alive() { "runs" } else { "is gone" };
        (
            "daemon",
            format!("{} {state} (pid {})", daemon.name, daemon.pid),
        )
    }));
    lines.iter().fold(String::new(), |text, (name, value)| {
        format!("{text}{name:<11} {value}\n")
    })
}

fn print(text: &str) {
    // A closed standard output (`| head`) is no failure.
    let _ = io::stdout().write_all(text.as_bytes());
}
