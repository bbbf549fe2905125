//! The cluster through kubectl: a client that shares no code with the launcher.

use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::{Ended, Error, NAMESPACE, Result, Running, Trying, WATCHDOG};

/// kubectl as one identity, in the namespace of the sandboxes.
#[derive(Debug, Clone)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
}

impl Kubectl {
    /// With this program and configuration.
    pub fn new(program: impl Into<PathBuf>, kubeconfig: impl Into<PathBuf>) -> Self {
        Kubectl {
            program: program.into(),
            kubeconfig: kubeconfig.into(),
        }
    }

    /// Where its kubeconfig is, and of a test bed all else.
    pub fn folder(&self) -> &Path {
        self.kubeconfig.parent().unwrap_or(Path::new(""))
    }

    /// The same program with another configuration.
    #[must_use]
    pub fn with_kubeconfig(&self, kubeconfig: &Path) -> Self {
        Kubectl::new(&self.program, kubeconfig)
    }

    /// The configuration it uses.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The program.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// A command, to be run by the caller.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.env("KUBECONFIG", &self.kubeconfig);
        command.args(["--namespace", NAMESPACE]).args(args);
        command
    }

    /// Applies a folder of manifests, each in the namespace it names.
    pub fn apply(&self, folder: &Path) -> Result<()> {
        let mut command = Command::new(&self.program);
        command.env("KUBECONFIG", &self.kubeconfig);
        command.args(["apply", "--kustomize"]).arg(folder);
        Running::start(&mut command)?
            .wait(WATCHDOG)?
            .with_code(0)
            .map(drop)
    }

    /// Runs it, whatever comes of it.
    pub fn try_run(&self, args: &[&str]) -> Result<Ended> {
        Running::start(&mut self.command(args))?.wait(WATCHDOG)
    }

    /// Runs it to its success and returns what it printed.
    pub fn run(&self, args: &[&str]) -> Result<String> {
        Ok(self.try_run(args)?.with_code(0)?.stdout)
    }

    /// Runs it with an object on its standard input, whatever comes of it.
    pub fn try_send(&self, args: &[&str], object: &Value) -> Result<Ended> {
        let mut file = tempfile::tempfile().trying("make a temporary file")?;
        file.write_all(object.to_string().as_bytes())
            .and_then(|()| file.rewind())
            .trying("write a temporary file")?;
        let args = [args, &["--filename", "-"]].concat();
        Running::start_with(&mut self.command(&args), Stdio::from(file))?.wait(WATCHDOG)
    }

    /// Creates an object and returns it as the API server made it.
    pub fn create(&self, object: &Value) -> Result<Value> {
        self.try_send(&["create", "--output=json"], object)?
            .with_code(0)?
            .json()
    }

    /// The same in another namespace.
    pub fn create_in(&self, namespace: &str, object: &Value) -> Result<Value> {
        let args = ["create", "--output=json", "--namespace", namespace];
        self.try_send(&args, object)?.with_code(0)?.json()
    }

    /// Objects, or one object, as JSON.
    pub fn get(&self, args: &[&str]) -> Result<Value> {
        let args = [&["get", "--output=json"], args].concat();
        self.try_run(&args)?.with_code(0)?.json()
    }

    /// One object, or `None` when there is none of that name.
    pub fn find(&self, kind: &str, name: &str) -> Result<Option<Value>> {
        let ended = self.try_run(&[
            "get",
            kind,
            name,
            "--output=json",
            "--ignore-not-found=true",
        ])?;
        let ended = ended.with_code(0)?;
        if ended.stdout.trim().is_empty() {
            return Ok(None);
        }
        ended.json().map(Some)
    }

    /// One object that has to be there.
    pub fn one(&self, kind: &str, name: &str) -> Result<Value> {
        self.find(kind, name)?
            .ok_or_else(|| Error::Missing(format!("there is no {kind} {name}")))
    }

    /// Waits until an object is gone; one that is gone already counts.
    pub fn wait_gone(&self, kind: &str, name: &str) -> Result<Duration> {
        self.wait_for(kind, name, "--for=delete")
    }

    /// Waits on kubectl's own watch until a condition holds: `--for=create`,
    /// `--for=jsonpath=…`.
    pub fn wait_for(&self, kind: &str, name: &str, condition: &str) -> Result<Duration> {
        let timeout = format!("--timeout={}s", WATCHDOG.as_secs());
        let object = format!("{kind}/{name}");
        let ended = self.try_run(&["wait", &object, condition, &timeout])?;
        Ok(ended.with_code(0)?.took)
    }

    /// `kind/name` of all services, pods and secrets that match a label selector
    /// or, as secrets are not all labelled the same, whose name begins so.
    pub fn left_of(&self, sandbox: &str) -> Result<Vec<String>> {
        let all = self.get(&["services,pods,secrets"])?;
        let items = all["items"].as_array().cloned().unwrap_or_default();
        let name = |item: &Value| item["metadata"]["name"].as_str().map(str::to_owned);
        Ok(items
            .iter()
            .filter_map(|item| {
                let name = name(item)?;
                name.starts_with(sandbox)
                    .then(|| format!("{}/{name}", item["kind"].as_str().unwrap_or_default()))
            })
            .collect())
    }
}
