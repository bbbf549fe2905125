//! A client whose credentials can be had anew: when the API server does not
//! accept them, they are read again from where they came from (a file, an exec
//! plugin, a token that has rotated), once a request, and the request is sent
//! again. A 401 comes before anything is done, so nothing is done twice.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;

use super::config::{ConfigError, Source, load};

/// Longest an exec plugin may take; one that asks a person is slow.
const CREDENTIALS: Duration = Duration::from_mins(1);

struct Renewed {
    source: Source,
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
) -> Result<Client, ConfigError> {
    let first = match config {
        Some(config) => Some((build(config).await?, 0)),
        None => None,
    };
    let renewed = Arc::new(Renewed {
        source: source.clone(),
        current: Mutex::new(first),
        reading: tokio::sync::Mutex::default(),
    });
    let service = tower::service_fn(move |request| {
        let renewed = Arc::clone(&renewed);
        async move { renewed.send(request).await }
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
    let making = tokio::task::spawn_blocking(move || Client::try_from(config));
    match tokio::time::timeout(CREDENTIALS, making).await {
        Ok(Ok(made)) => made.map_err(|error| failed(problem(&error))),
        Ok(Err(error)) => Err(failed(error.to_string())),
        Err(_) => Err(failed(format!(
            "no credentials within {CREDENTIALS:?}: the kubeconfig's exec plugin does not end"
        ))),
    }
}

/// What is wrong, without what an exec plugin wrote to its standard output: it
/// may be a credential.
pub(super) fn problem(error: &kube::Error) -> String {
    use kube::client::AuthError;
    match error {
        kube::Error::Auth(AuthError::AuthExecRun { cmd, out }) => {
            let said = String::from_utf8_lossy(&out.stderr);
            let said = said.lines().rfind(|line| !line.trim().is_empty());
            let said = said.unwrap_or("it says nothing on standard error").trim();
            format!("exec plugin {cmd:?} failed ({}): {said}", out.status)
        }
        other => super::class::innermost(other).to_string(),
    }
}

impl Renewed {
    async fn send(&self, request: Request<Body>) -> kube::Result<Response<Body>> {
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

    /// A client with credentials that are newer than those of `version`.
    async fn newer_than(&self, version: Option<u64>) -> Result<(Client, u64), ConfigError> {
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
