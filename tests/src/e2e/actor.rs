//! Whoever launches: the launcher's `ServiceAccount` with exactly the rights of
//! `deploy/`, a credential of its own, and `podcradle` run as it. What a test
//! leaves behind when it fails goes with it.

use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use tempfile::TempDir;

use super::{Arch, Cluster, Ended, Result, Running, Trying, WATCHDOG, hexadecimal};

/// One identity, for one architecture of launcher and image.
pub struct Actor {
    /// Which launcher runs, and which image.
    pub arch: Arch,
    /// Where.
    pub cluster: &'static Cluster,
    /// The id of its credential in the audit log.
    pub credential: String,
    kubeconfig: PathBuf,
    token: String,
    launcher: PathBuf,
    folder: TempDir,
    owned: Mutex<Vec<String>>,
}

impl Actor {
    /// A fresh identity.
    pub fn new(arch: Arch) -> Result<Self> {
        let launcher = Cluster::launcher(arch)?;
        let cluster = Cluster::get()?;
        let folder = tempfile::tempdir().trying("make a temporary folder")?;
        let kubeconfig = folder.path().join("kubeconfig");
        let (token, credential) = cluster.launcher_token()?;
        cluster.kubeconfig(&kubeconfig, &token, None)?;
        Ok(Actor {
            arch,
            cluster,
            credential,
            kubeconfig,
            token,
            launcher,
            folder,
            owned: Mutex::default(),
        })
    }

    /// A folder that lives as long as the actor.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// From now on it reaches the API server through this address.
    pub fn go_through(&self, at: SocketAddr) -> Result<()> {
        self.cluster
            .kubeconfig(&self.kubeconfig, &self.token, Some(at))
    }

    /// The token of its `ServiceAccount`.
    pub fn credential_token(&self) -> &str {
        &self.token
    }

    /// The program it runs.
    pub fn program(&self) -> &Path {
        &self.launcher
    }

    /// `podcradle` with these arguments, and nothing of this process' own
    /// configuration.
    pub fn podcradle(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.launcher);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PODCRADLE") {
                command.env_remove(name);
            }
        }
        command.env("XDG_CONFIG_HOME", self.folder.path());
        command.env("KUBECONFIG", &self.kubeconfig).args(args);
        command
    }

    /// Runs it, whatever comes of it.
    pub fn try_run(&self, args: &[&str]) -> Result<Ended> {
        Running::start(&mut self.podcradle(args))?.wait(WATCHDOG)
    }

    /// Runs it to its success.
    pub fn run(&self, args: &[&str]) -> Result<Ended> {
        self.try_run(args)?.with_code(0)
    }

    /// Runs it with `-o json` to its success.
    pub fn json(&self, args: &[&str]) -> Result<Value> {
        self.run(&[args, &["-o", "json"]].concat())?.json()
    }

    /// A name for a sandbox that does not exist yet.
    pub fn reserve(&self, label: &str) -> Result<String> {
        let reserved = self.run(&["reserve", label, "-o", "name"])?;
        let name = reserved.stdout.trim().to_owned();
        self.own(&name);
        Ok(name)
    }

    /// Cleans this sandbox up at the end, whatever the test comes to.
    pub fn own(&self, name: &str) {
        let mut owned = self.owned.lock().unwrap_or_else(PoisonError::into_inner);
        owned.push(name.to_owned());
    }

    /// A launch of this sandbox from the image of the actor's architecture.
    pub fn launch(&self, sandbox: &str) -> Launch<'_> {
        Launch::of(self, &Cluster::image(self.arch)).option(&["--sandbox", sandbox])
    }

    /// Many launches in one, under names made from this label.
    pub fn launch_many(&self, label: &str) -> Launch<'_> {
        Launch::of(self, &Cluster::image(self.arch)).option(&["--name", label])
    }

    /// For a client that is not ours: the API server's URL, its authority's
    /// certificate in base64, and the actor's credential.
    pub fn credentials(&self) -> (&str, &str, &str) {
        let (server, authority) = self.cluster.server();
        (server, authority, &self.token)
    }

    /// A file with a fresh token, and the token.
    pub fn token(&self) -> Result<(PathBuf, String)> {
        let mut bytes = [0; 32];
        std::fs::File::open("/dev/urandom")
            .and_then(|mut random| random.read_exact(&mut bytes))
            .trying("get random bytes")?;
        let token = hexadecimal(&bytes);
        let file = self.folder().join(format!("token-{}", &token[..8]));
        std::fs::write(&file, &token).trying("write a token file")?;
        Ok((file, token))
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let owned = self.owned.lock().unwrap_or_else(PoisonError::into_inner);
        for name in owned.iter() {
            // A test that failed has said so; this only tidies up after it.
            let _ = self.cluster.admin.try_run(&[
                "delete",
                &format!("services/{name}"),
                &format!("pods/{name}"),
                "--ignore-not-found=true",
                "--wait=false",
            ]);
        }
    }
}

/// A `podcradle launch` in the making.
pub struct Launch<'a> {
    actor: &'a Actor,
    options: Vec<String>,
    host: Vec<String>,
}

impl<'a> Launch<'a> {
    /// With small requests, so that many sandboxes fit on the one node.
    pub fn of(actor: &'a Actor, image: &str) -> Self {
        Launch {
            actor,
            options: Vec::new(),
            host: Vec::new(),
        }
        .option(&["--image", image, "--image-pull-policy", "IfNotPresent"])
        .option(&["--cpu-request", "10m", "--memory-request", "32Mi"])
        .option(&["-o", "json"])
    }

    /// With further options.
    #[must_use]
    pub fn option(mut self, words: &[&str]) -> Self {
        self.options
            .extend(words.iter().map(|&word| word.to_owned()));
        self
    }

    /// With this host instead of the default one.
    #[must_use]
    pub fn host(mut self, words: &[&str]) -> Self {
        self.host = words.iter().map(|&word| word.to_owned()).collect();
        self
    }

    /// The command, to be run by the caller.
    pub fn command(&self) -> Command {
        let mut command = self.actor.podcradle(&["launch"]);
        command.args(&self.options);
        if !self.host.is_empty() {
            command.arg("--").args(&self.host);
        }
        command
    }

    /// Starts it.
    pub fn start(&self) -> Result<Running> {
        Running::start(&mut self.command())
    }

    /// Runs it, whatever comes of it.
    pub fn try_run(&self) -> Result<Ended> {
        self.start()?.wait(WATCHDOG)
    }

    /// Runs it to its success and returns what it printed.
    pub fn run(&self) -> Result<Value> {
        self.try_run()?.with_code(0)?.json()
    }
}
