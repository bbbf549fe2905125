//! A fake API server with a launcher that is pointed at it.

use std::path::Path;
use std::time::Duration;

use podcradle_launcher::cluster::Source;
use podcradle_launcher::token::Token;
use podcradle_launcher::{Failure, Launched, Launcher, Outcome, SandboxSpec};
use podcradle_tests::fakeapi::{FakeApi, going_well};
use podcradle_tests::harness::Stop;
use serde_json::Value;

/// What every launch of this suite is called.
pub const NAME: &str = "podcradle-faults-000000";
/// Nothing here takes a tenth of it.
const WATCHDOG: Duration = Duration::from_secs(100);

pub struct Bed {
    pub api: FakeApi,
    pub launcher: Launcher,
    source: Source,
    _dir: tempfile::TempDir,
}

impl Bed {
    pub fn new(kubelet: Vec<Value>) -> Result<Self, Stop> {
        let api = FakeApi::start(kubelet)?;
        let dir = tempfile::tempdir()?;
        let kubeconfig = dir.path().join("kubeconfig");
        api.kubeconfig(&kubeconfig)?;
        let source = Source {
            kubeconfig: Some(kubeconfig),
            ..Source::default()
        };
        Ok(Self {
            api,
            launcher: Launcher::start(&source)?,
            source,
            _dir: dir,
        })
    }

    pub fn well() -> Result<Self, Stop> {
        Self::new(going_well())
    }

    /// A kubeconfig that leads to the fake.
    pub fn kubeconfig(&self) -> &Path {
        self.source.kubeconfig.as_deref().unwrap_or(Path::new(""))
    }

    /// Another launcher, as another process would be.
    pub fn another(&self) -> Result<Launcher, Stop> {
        Ok(Launcher::start(&self.source)?)
    }

    /// Launches to the end.
    pub fn launch(&self) -> Result<Outcome, Stop> {
        self.launch_spec(spec())
    }

    pub fn launch_spec(&self, spec: SandboxSpec) -> Result<Outcome, Stop> {
        let launch = self.launcher.launch(spec, Token::random())?;
        wait(launch)
    }

    /// Runs one Pod to its host, as its kubelet would.
    pub fn run(&self, pod: &str) {
        for status in going_well() {
            self.api.change("pods", pod, |pod| pod["status"] = status);
        }
    }

    /// Waits until the launcher has cleaned up and ended.
    pub fn shut_down(&self) -> Result<(), Stop> {
        wait(self.launcher.shutdown())
    }
}

pub fn spec() -> SandboxSpec {
    SandboxSpec::new(NAME, "localhost/image:1")
}

/// Drives a future on a runtime of the test's own.
pub fn wait<F: Future>(future: F) -> Result<F::Output, Stop> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    Ok(runtime.block_on(async { tokio::time::timeout(WATCHDOG, future).await })?)
}

pub fn launched(outcome: Outcome) -> Result<Launched, Stop> {
    match outcome {
        Outcome::Launched(launched) => Ok(*launched),
        Outcome::Failed(failure) => Err(Stop::Failed(format!("the launch failed: {failure:?}"))),
    }
}

pub fn failed(outcome: Outcome) -> Result<Failure, Stop> {
    match outcome {
        Outcome::Failed(failure) => Ok(*failure),
        Outcome::Launched(launched) => {
            Err(Stop::Failed(format!("the launch went well: {launched:?}")))
        }
    }
}
