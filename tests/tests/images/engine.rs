//! A docker engine of our own, Debian's: its state in a folder that goes with
//! it, no bridge, no firewall rules, and our supervisor as its `--init` program.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use podcradle_tests::harness::{Stop, skip};
use serde_json::json;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::archive::{Archive, Error, write_tar};
use crate::root;

const WATCHDOG: Duration = Duration::from_mins(2);
const ENDED: &[u8] = b"ENDED";

/// The engine, once some test has asked for it.
#[derive(Default)]
pub struct Engine(Mutex<Started>);

#[derive(Default)]
enum Started {
    #[default]
    NotYet,
    Running(Running),
    /// Why it cannot run on this machine, or why it failed.
    Not(Result<String, String>),
}

struct Running {
    daemon: Child,
    folder: TempDir,
}

impl Engine {
    /// A `docker` command for this engine, which is started when it does not run yet.
    pub fn docker(&self) -> Result<Command, Stop> {
        let mut started = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*started, Started::NotYet) {
            *started = match cannot_run() {
                Some(reason) => Started::Not(Ok(reason)),
                None => match Running::start() {
                    Ok(running) => Started::Running(running),
                    Err(error) => Started::Not(Err(error.to_string())),
                },
            };
        }
        match &*started {
            Started::Running(running) => Ok(running.docker()),
            Started::Not(Ok(reason)) => Err(skip(reason)),
            Started::Not(Err(error)) => Err(Stop::from(error)),
            Started::NotYet => Err(Stop::from("the engine was not started")),
        }
    }

    /// Ends the engine and everything it ran.
    pub fn stop(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Started::NotYet;
    }
}

fn cannot_run() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("a docker engine needs root".to_owned());
    }
    let found = Command::new("dockerd").arg("--version").output();
    found
        .is_err()
        .then(|| "no docker engine (apt-get install docker.io)".to_owned())
}

impl Running {
    fn start() -> Result<Self, Error> {
        let folder = tempfile::Builder::new()
            .prefix("podcradle-docker")
            .tempdir()?;
        let at = |name: &str| folder.path().join(name);
        // systemd's protocol: the daemon itself says when it is ready.
        let notices = UnixDatagram::bind(at("notify"))?;
        notices.set_read_timeout(Some(WATCHDOG))?;
        let machine = if cfg!(target_arch = "aarch64") {
            "arm64"
        } else {
            "amd64"
        };
        // `docker info` reads the version it prints under this name.
        let init = at("docker-init");
        symlink(
            root().join(format!("out/stage/supervisor/{machine}/podcradle-init")),
            &init,
        )?;
        // The machine's own configuration is for the machine's own engine.
        fs::write(at("config.json"), "{}")?;
        let mut daemon = Command::new("dockerd")
            .arg(format!("--host=unix://{}", at("sock").display()))
            .arg(format!("--data-root={}", at("data").display()))
            .arg(format!("--exec-root={}", at("exec").display()))
            .arg(format!("--pidfile={}", at("pid").display()))
            .arg(format!("--init-path={}", init.display()))
            .arg(format!("--config-file={}", at("config.json").display()))
            .args(["--bridge=none", "--iptables=false"])
            .env("NOTIFY_SOCKET", at("notify"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(at("log"))?)
            .spawn()?;
        let (output, notify) = (daemon.stdout.take(), at("notify"));
        let running = Running { daemon, folder };
        thread::spawn(move || {
            // It writes nothing there; the end of the stream is its own end.
            let _ = output.map(|mut output| io::copy(&mut output, &mut io::sink()));
            let _ = UnixDatagram::unbound().map(|socket| socket.send_to(ENDED, notify));
        });
        let mut notice = [0; 256];
        loop {
            let length = notices
                .recv(&mut notice)
                .map_err(|error| running.blame(&error))?;
            match &notice[..length] {
                ENDED => return Err(running.blame(&io::ErrorKind::BrokenPipe.into())),
                notice if notice.starts_with(b"READY=1") => return Ok(running),
                _ => {}
            }
        }
    }

    fn blame(&self, error: &io::Error) -> Error {
        let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        let tail = log.lines().rev().take(5).collect::<Vec<_>>().join("\n");
        format!("dockerd did not get ready: {error}\n{tail}").into()
    }

    fn docker(&self) -> Command {
        let mut docker = Command::new("docker");
        docker.env(
            "DOCKER_HOST",
            format!("unix://{}", self.folder.path().join("sock").display()),
        );
        docker.env("DOCKER_CONFIG", self.folder.path());
        docker.env_remove("DOCKER_CONTEXT").stdin(Stdio::null());
        docker
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It ends its containers and its containerd; then the folder can go.
        let _ = kill(
            Pid::from_raw(self.daemon.id().cast_signed()),
            Signal::SIGTERM,
        );
        let _ = self.daemon.wait();
    }
}

/// Output of a command that must succeed.
pub fn must(command: &mut Command) -> Result<String, Error> {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output()?;
    if status.success() {
        return Ok(String::from_utf8_lossy(&stdout).trim_end().to_owned());
    }
    Err(format!(
        "{command:?}: {status}: {}",
        String::from_utf8_lossy(&stderr)
    )
    .into())
}

/// Loads one platform of an archive as `tag`.
pub fn load(engine: &Engine, image: &str, arch: &str, tag: &str) -> Result<(), Stop> {
    let archive = Archive::read(&root().join(format!("out/images/{image}.tar")))?;
    let file = tempfile::NamedTempFile::new()?;
    archive.write_for_docker(&format!("linux/{arch}"), tag, file.path())?;
    must(
        engine
            .docker()?
            .args(["load", "--quiet", "--input"])
            .arg(file.path()),
    )?;
    Ok(())
}

/// Loads an image made of one file, `/program`: nothing of ours, not even a shell.
pub fn load_one(engine: &Engine, program: &Path, arch: &str, tag: &str) -> Result<(), Stop> {
    let mut layer = tar::Builder::new(Vec::new());
    layer.append_path_with_name(program, "program")?;
    let layer = layer.into_inner()?;
    let config = json!({
        "os": "linux",
        "architecture": arch,
        "config": {},
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{:x}", Sha256::digest(&layer))] },
    });
    let list = json!([{ "Config": "config.json", "RepoTags": [tag], "Layers": ["layer.tar"] }]);
    let file = tempfile::NamedTempFile::new()?;
    let files = [
        ("manifest.json", list.to_string().into_bytes()),
        ("config.json", config.to_string().into_bytes()),
        ("layer.tar", layer),
    ];
    write_tar(
        file.path(),
        files.iter().map(|(name, bytes)| (*name, bytes.as_slice())),
    )?;
    must(
        engine
            .docker()?
            .args(["load", "--quiet", "--input"])
            .arg(file.path()),
    )?;
    Ok(())
}
