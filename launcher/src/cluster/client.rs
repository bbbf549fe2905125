//! A client whose credentials can be had anew: when the API server does not
//! accept them, they are read again from where they came from (a file, an exec
//! plugin, a token that has rotated), once a request, and the request is sent
//! again. A 401 comes before anything is done, so nothing is done twice.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;

use super::config::{ConfigError, Source, load};
use super::retry_after::as_status;

/// Longest an exec plugin may take; one that asks a person is slow.
const CREDENTIALS: Duration = Duration::from_mins(1);

/// Whether credentials are being read: the time of a try does not count then.
#[derive(Clone, Default)]
pub(super) struct Reading(Arc<AtomicUsize>);

struct Now<'a>(&'a AtomicUsize);

impl Reading {
    fn begin(&self) -> Now<'_> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Now(&self.0)
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Now<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Renewed {
    source: Source,
    /// How many clients of the process are reading credentials.
    reading_now: Reading,
    /// The client, and the how manieth it is.
    current: Mutex<Option<(Client, u64)>>,
    /// Held while credentials are read: one reader for all that wait.
    reading: tokio::sync::Mutex<()>,
}

/// A client for `config`, which `source` led to. With none the client makes
/// itself ready when it is first used: an exec plugin takes its time.
pub(super) async fn renewing(
    source: &Source,
    namespace: &str,
    config: Option<kube::Config>,
    reading_now: &Reading,
) -> Result<Client, ConfigError> {
    let first = match config {
        Some(config) => Some((build(config).await?, 0)),
        None => None,
    };
    let renewed = Arc::new(Renewed {
        source: source.clone(),
        reading_now: reading_now.clone(),
        current: Mutex::new(first),
        reading: tokio::sync::Mutex::default(),
    });
    let service = tower::service_fn(move |request| {
        let renewed = Arc::clone(&renewed);
        async move { as_status(renewed.send(request).await?).await }
    });
    Ok(Client::new(service, namespace))
}

/// Runs the exec plugin, when there is one, outside of the runtime's thread.
async fn build(config: kube::Config) -> Result<Client, ConfigError> {
    let server = super::server_of(&config);
    let failed = |message: String| ConfigError::Client {
        server: server.clone(),
        message,
    };
    let plugin = config.auth_info.exec.as_ref();
    let plugin = plugin.and_then(|exec| exec.command.clone());
    let making = tokio::task::spawn_blocking(move || Client::try_from(config));
    match tokio::time::timeout(CREDENTIALS, making).await {
        Ok(Ok(made)) => made.map_err(|error| failed(problem(&error, plugin.as_deref()))),
        Ok(Err(error)) => Err(failed(error.to_string())),
        Err(_) => Err(failed(format!(
            "no credentials within {CREDENTIALS:?}: {} does not end",
            shown(plugin.as_deref())
        ))),
    }
}

/// What is wrong, without what may be a credential: an exec plugin's arguments
/// and variables, and what it wrote to its standard output.
pub(super) fn problem(error: &kube::Error, plugin: Option<&str>) -> String {
    use kube::client::AuthError;
    let plugin = shown(plugin);
    match error {
        kube::Error::Auth(AuthError::AuthExecRun { out, .. }) => {
            let said = String::from_utf8_lossy(&out.stderr);
            let said = said.lines().rfind(|line| !line.trim().is_empty());
            let said = said.unwrap_or("it says nothing on standard error").trim();
            format!("{plugin} failed ({}): {said}", out.status)
        }
        kube::Error::Auth(AuthError::AuthExecStart(error)) => {
            format!("{plugin} cannot be run: {error}")
        }
        kube::Error::Auth(AuthError::AuthExecParse(error)) => {
            let place = super::config::place(error);
            format!("{plugin} gave no ExecCredential: its output is wrong{place}")
        }
        other => super::class::innermost(other).to_string(),
    }
}

fn shown(plugin: Option<&str>) -> String {
    plugin.map_or_else(
        || "the kubeconfig's exec plugin".to_owned(),
        |program| format!("exec plugin {program:?}"),
    )
}

impl Renewed {
    async fn send(self: Arc<Self>, request: Request<Body>) -> kube::Result<Response<Body>> {
        let (client, version) = match self.current() {
            Some(current) => current,
            None => self.newer_than(None).await.map_err(failed)?,
        };
        let (parts, body) = request.into_parts();
        let again = body.try_clone();
        let answer = client
            .send(Request::from_parts(parts.clone(), body))
            .await?;
        let (StatusCode::UNAUTHORIZED, Some(body)) = (answer.status(), again) else {
            return Ok(answer);
        };
        tracing::debug!("the credentials are refused: reading them again");
        match self.newer_than(Some(version)).await {
            Ok((client, _)) => client.send(Request::from_parts(parts, body)).await,
            Err(error) => {
                tracing::warn!(%error, "the credentials cannot be read again");
                Ok(answer)
            }
        }
    }

    fn current(&self) -> Option<(Client, u64)> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.clone()
    }

    /// A client with credentials that are newer than those of `version`. They
    /// are read to the end though nobody waits any more: a plugin that takes
    /// longer than a try would else be run again and again.
    async fn newer_than(
        self: &Arc<Self>,
        version: Option<u64>,
    ) -> Result<(Client, u64), ConfigError> {
        let reading = Arc::clone(self).read(version);
        let read = tokio::spawn(reading).await;
        read.unwrap_or_else(|error| {
            Err(ConfigError::Client {
                server: "credentials".to_owned(),
                message: error.to_string(),
            })
        })
    }

    async fn read(self: Arc<Self>, version: Option<u64>) -> Result<(Client, u64), ConfigError> {
        let _now = self.reading_now.begin();
        let _reading = self.reading.lock().await;
        if let Some((client, now)) = self.current().filter(|(_, now)| Some(*now) != version) {
            return Ok((client, now));
        }
        let client = build(load(&self.source)?).await?;
        let newer = (client, version.map_or(0, |version| version + 1));
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        *current = Some(newer.clone());
        Ok(newer)
    }
}

fn failed(error: ConfigError) -> kube::Error {
    kube::Error::Service(Box::new(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of a plugin that is this script.
    async fn said_of(script: &str) -> String {
        let mut config = kube::Config::new("https://api:6443".parse().unwrap());
        let exec = serde_json::json!({
            "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
            "command": "/bin/sh", "args": ["-c", script, "s3cret"],
            "env": [{ "name": "LOGIN", "value": "s3cret" }],
        });
        config.auth_info.exec = Some(serde_json::from_value(exec).unwrap());
        match build(config).await {
            Ok(_) => panic!("{script}: no error"),
            Err(error) => error.to_string(),
        }
    }

    #[tokio::test]
    async fn of_an_exec_plugin_only_its_name_and_its_words_are_shown() {
        let failed = said_of("echo s3cret; echo log in first >&2; exit 3").await;
        assert!(
            failed.contains(r#"exec plugin "/bin/sh" failed"#),
            "{failed}"
        );
        assert!(failed.contains("log in first"), "{failed}");
        let malformed = said_of(r#"printf '{"kind": 1, "status": {"token": "s3cret"'"#).await;
        assert!(malformed.contains("at line 1, column "), "{malformed}");
        let of_another_type = said_of(r#"printf '{"status": {"token": ["s3cret"]}}'"#).await;
        assert!(of_another_type.contains("at line 1"), "{of_another_type}");
        for text in [failed, malformed, of_another_type] {
            assert!(
                !text.contains("s3cret") && !text.contains("LOGIN"),
                "{text}"
            );
        }
    }
}
