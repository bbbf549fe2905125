//! Clients whose credentials can be had anew: when they have expired, or the
//! API server does not accept them, they are read again from where they came
//! from (a file, an exec plugin, a token that has rotated), and the request is
//! sent, or sent again. A 401 comes before anything is done, so nothing is done
//! twice.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::{Request, Response, StatusCode};
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::client::Body;
use tokio::sync::watch;

use super::config::{ConfigError, Source, load};
use super::plugin::{self, Trouble};
use super::retry_after::as_status;

/// How long before they expire credentials are read anew: a plugin may take a
/// minute.
const AHEAD: SignedDuration = SignedDuration::from_secs(75);

/// What a source leads to, read once for all clients of a process.
pub(super) struct Credentials {
    source: Source,
    current: Mutex<Known>,
    /// Held while they are read: one reader for all that wait.
    reader: tokio::sync::Mutex<()>,
    /// How often that failed, and how it did last: whoever waited meanwhile
    /// does not try once more.
    failed: Mutex<(u64, String)>,
    /// Whether those after these are being read, or were, before it was time.
    ahead: Mutex<Option<u64>>,
    /// How many wait for them.
    reading: watch::Sender<usize>,
}

#[derive(Clone)]
struct Known {
    config: Arc<kube::Config>,
    /// The how manieth they are.
    version: u64,
    /// When they were asked for.
    since: Timestamp,
    /// When they expire, where that is known.
    until: Option<Timestamp>,
}

impl Known {
    /// Whether so little is left of their time that a slow plugin would be late:
    /// a Lease waits for nobody.
    fn expire_soon(&self, now: Timestamp) -> bool {
        self.until.is_some_and(|until| {
            let left = until.duration_since(now);
            left < AHEAD && left < until.duration_since(self.since) / 4
        })
    }
}

struct Reading<'a>(&'a watch::Sender<usize>);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|readers| *readers -= 1);
    }
}

impl Credentials {
    /// Those that `config` has, to which `source` led.
    pub(super) async fn of(
        source: &Source,
        config: kube::Config,
    ) -> Result<Arc<Self>, ConfigError> {
        Ok(Arc::new(Self {
            source: source.clone(),
            current: Mutex::new(read(config, 0, source).await?),
            ahead: Mutex::default(),
            reader: tokio::sync::Mutex::default(),
            failed: Mutex::default(),
            reading: watch::Sender::new(0),
        }))
    }

    /// How many wait for credentials that are being read.
    pub(super) fn reading(&self) -> watch::Receiver<usize> {
        self.reading.subscribe()
    }

    fn known(&self) -> Known {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.clone()
    }

    fn failures(&self) -> MutexGuard<'_, (u64, String)> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that are good, as far as is known.
    async fn current(self: &Arc<Self>) -> Result<Known, ConfigError> {
        let (known, now) = (self.known(), Timestamp::now());
        if known.until.is_none_or(|until| now < until) {
            if known.expire_soon(now) {
                self.read_ahead(known.version);
            }
            return Ok(known);
        }
        tracing::debug!("the credentials have expired: reading them again");
        self.newer_than(known.version).await
    }

    /// Begins to read those after `version`, once, while these are good still.
    fn read_ahead(self: &Arc<Self>, version: u64) {
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        if ahead.replace(version) != Some(version) {
            tracing::debug!("the credentials expire soon: reading them again");
            let all = Arc::clone(self);
            let before = all.failures().0;
            tokio::spawn(async move { all.read_after(version, before).await.map(drop) });
        }
    }

    /// Newer ones than those of `version`. They are read to the end though
    /// nobody waits any more: a plugin that takes longer than a caller has would
    /// else be run again and again.
    async fn newer_than(self: &Arc<Self>, version: u64) -> Result<Known, ConfigError> {
        let all = Arc::clone(self);
        let before = all.failures().0;
        let reading = async move {
            all.reading.send_modify(|readers| *readers += 1);
            let _reading = Reading(&all.reading);
            all.read_after(version, before).await
        };
        tokio::spawn(reading).await.unwrap_or_else(|error| {
            Err(ConfigError::Client {
                server: "credentials".to_owned(),
                message: error.to_string(),
            })
        })
    }

    /// Reads those after `version`, unless somebody else has, or has failed to
    /// since there were so many failures.
    async fn read_after(&self, version: u64, before: u64) -> Result<Known, ConfigError> {
        let _reader = self.reader.lock().await;
        let known = self.known();
        if known.version != version {
            return Ok(known);
        }
        let (now, message) = self.failures().clone();
        if now != before {
            return Err(failed(&known.config, message));
        }
        let newer = match load(&self.source) {
            Ok((config, _)) => read(config, version + 1, &self.source).await,
            Err(error) => Err(error),
        };
        let newer = newer.inspect_err(|error| {
            let message = match error {
                ConfigError::Client { message, .. } | ConfigError::TimedOut { message, .. } => {
                    message.clone()
                }
                other => other.to_string(),
            };
            let mut failures = self.failures();
            *failures = (failures.0 + 1, message);
        })?;
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.clone_from(&newer);
        Ok(newer)
    }
}

/// Asks the exec plugin, when there is one.
async fn read(
    mut config: kube::Config,
    version: u64,
    source: &Source,
) -> Result<Known, ConfigError> {
    let since = Timestamp::now();
    let asked = plugin::ask(&mut config.auth_info, source).await;
    let until = asked.map_err(|trouble| match trouble {
        Trouble::Late(message) => ConfigError::TimedOut {
            server: super::server_of(&config),
            message,
        },
        Trouble::Wrong(message) => failed(&config, message),
    })?;
    let config = Arc::new(config);
    Ok(Known {
        config,
        version,
        since,
        until,
    })
}

fn failed(config: &kube::Config, message: String) -> ConfigError {
    ConfigError::Client {
        server: super::server_of(config),
        message,
    }
}

/// The client of some credentials. Reads files, outside of the runtime's thread.
async fn build(known: &Known) -> Result<Client, ConfigError> {
    let config = kube::Config::clone(&known.config);
    let making = tokio::task::spawn_blocking(move || Client::try_from(config));
    let problem = match making.await {
        Ok(Ok(made)) => return Ok(made),
        Ok(Err(error)) => super::class::innermost(&error).to_string(),
        Err(error) => error.to_string(),
    };
    Err(failed(&known.config, problem))
}

struct Renewed {
    credentials: Arc<Credentials>,
    /// The client, and whose credentials it has.
    made: Mutex<Option<(Client, u64)>>,
}

/// A client that is made when it is first used.
pub(super) fn lazy(credentials: &Arc<Credentials>, namespace: &str) -> Client {
    with(credentials, namespace, None)
}

/// A client that is known to be possible.
///
/// # Errors
/// When certificate or key cannot be used.
pub(super) async fn ready(
    credentials: &Arc<Credentials>,
    namespace: &str,
) -> Result<Client, ConfigError> {
    let known = credentials.known();
    let first = build(&known).await?;
    Ok(with(credentials, namespace, Some((first, known.version))))
}

fn with(credentials: &Arc<Credentials>, namespace: &str, made: Option<(Client, u64)>) -> Client {
    let renewed = Arc::new(Renewed {
        credentials: Arc::clone(credentials),
        made: Mutex::new(made),
    });
    let service = tower::service_fn(move |request| {
        let renewed = Arc::clone(&renewed);
        async move { as_status(renewed.send(request).await?).await }
    });
    Client::new(service, namespace)
}

impl Renewed {
    async fn send(self: Arc<Self>, request: Request<Body>) -> kube::Result<Response<Body>> {
        let known = self.credentials.current().await.map_err(service)?;
        let version = known.version;
        let client = self.client(known).await.map_err(service)?;
        let (parts, body) = request.into_parts();
        let again = body.try_clone();
        let answer = client
            .send(Request::from_parts(parts.clone(), body))
            .await?;
        let (StatusCode::UNAUTHORIZED, Some(body)) = (answer.status(), again) else {
            return Ok(answer);
        };
        tracing::debug!("the credentials are refused: reading them again");
        let newer = match self.credentials.newer_than(version).await {
            Ok(known) => self.client(known).await,
            Err(error) => Err(error),
        };
        match newer {
            Ok(client) => client.send(Request::from_parts(parts, body)).await,
            Err(error) => {
                tracing::warn!(%error, "the credentials cannot be read again");
                Ok(answer)
            }
        }
    }

    /// The client with these credentials.
    async fn client(&self, known: Known) -> Result<Client, ConfigError> {
        let of_version = |made: &Option<(Client, u64)>| {
            let made = made.as_ref().filter(|(_, of)| *of == known.version);
            made.map(|(client, _)| client.clone())
        };
        let lock = || self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = of_version(&lock()) {
            return Ok(client);
        }
        let client = build(&known).await?;
        let mut made = lock();
        // All that came at once share the connections of one.
        if let Some(client) = of_version(&made) {
            return Ok(client);
        }
        *made = Some((client.clone(), known.version));
        Ok(client)
    }
}

fn service(error: ConfigError) -> kube::Error {
    kube::Error::Service(Box::new(error))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// A plugin whose script asks of a folder and writes to it.
    fn source(folder: &Path, script: &str) -> Source {
        let kubeconfig = folder.join("config");
        let script = format!("cd {}; {script}", folder.display());
        let config = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{ "name": "c", "cluster": { "server": "https://api.example" } }],
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
            "users": [{ "name": "u", "user": { "exec": {
                "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
                "command": "/bin/sh", "args": ["-c", script],
            } } }],
        });
        std::fs::write(&kubeconfig, config.to_string()).unwrap();
        Source {
            kubeconfig: Some(kubeconfig),
            ..Source::default()
        }
    }

    fn none() -> kube::Config {
        kube::Config::new("https://api.example".parse().unwrap())
    }

    #[tokio::test]
    async fn a_slow_plugin_is_asked_while_its_last_word_holds() {
        let folder = tempfile::tempdir().unwrap();
        let runs = folder.path().join("runs");
        let script = r#"echo >> runs; mkfifo asked; read -r until < asked
            printf '{"status": {"token": "t", "expirationTimestamp": "%s"}}' "$until""#;
        let all = Credentials::of(&source(folder.path(), script), none())
            .await
            .unwrap();
        let hour = SignedDuration::from_hours(1);
        let last = |since, left| {
            let mut current = all.current.lock().unwrap();
            let now = Timestamp::now();
            (current.since, current.until) = (now - since, Some(now + left));
        };
        // Most of their time has come, and not the last of it.
        last(hour, SignedDuration::from_mins(2));
        assert_eq!(all.current().await.unwrap().version, 0);
        assert!(all.ahead.lock().unwrap().is_none());
        last(hour, SignedDuration::from_mins(1));
        for _ in 0..3 {
            assert_eq!(all.current().await.unwrap().version, 0);
        }
        // Nobody counts as one who waits for it.
        assert_eq!(*all.reading().borrow(), 0);
        let answer = async {
            let path = folder.path().join("asked");
            while !path.exists() {
                tokio::task::yield_now().await;
            }
            tokio::fs::write(path, "2999-01-01T00:00:00Z\n").await
        };
        let (answered, newer) = tokio::join!(answer, all.newer_than(0));
        answered.unwrap();
        assert_eq!(newer.unwrap().version, 1);
        assert_eq!(all.current().await.unwrap().version, 1);
        assert_eq!(std::fs::read_to_string(&runs).unwrap().lines().count(), 1);
    }

    /// Whoever waits for a plugin that fails is told, and does not run it too.
    #[tokio::test]
    async fn a_plugin_that_fails_fails_for_all_that_wait_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let runs = folder.path().join("runs");
        let all = Credentials::of(&source(folder.path(), "echo >> runs; exit 3"), none())
            .await
            .unwrap();
        let asked = futures::future::join_all((0..5).map(|_| all.newer_than(0))).await;
        assert!(asked.iter().all(Result::is_err));
        let runs_of = || std::fs::read_to_string(&runs).unwrap().lines().count();
        assert_eq!(runs_of(), 1);
        // Later it may do better.
        assert!(all.newer_than(0).await.is_err());
        assert_eq!(runs_of(), 2);
    }
}
