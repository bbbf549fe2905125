//! A client whose credentials can be had anew: when the API server does not
//! accept them, they are read again from where they came from (a file, an exec
//! plugin, a token that has rotated), once a request, and the request is sent
//! again. A 401 comes before anything is done, so nothing is done twice.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube::Client;
use kube::client::Body;
use http::{Request, Response, StatusCode};

use super::config::{ConfigError, Source, load};

/// Longest an exec plugin may take; one that asks a person is slow.
const CREDENTIALS: Duration = Duration::from_secs(60);

struct Renewed {
    source: Source,
    current: Mutex<(Client, u64)>,
    /// Held while credentials are read: one reader for all that wait.
    reading: tokio::sync::Mutex<()>,
}

/// A client for `config`, which `source` led to.
pub(super) async fn renewing(source: &Source, config: kube::Config) -> Result<Client, ConfigError> {
    let namespace = config.default_namespace.clone();
    let renewed = Arc::new(Renewed {
        source: source.clone(),
        current: Mutex::new((build(config).await?, 0)),
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
        let (client, version) = self.current();
        let (parts, body) = request.into_parts();
        let again = body.try_clone();
        let answer = client
            .send(Request::from_parts(parts.clone(), body))
            .await?;
        let (StatusCode::UNAUTHORIZED, Some(body)) = (answer.status(), again) else {
            return Ok(answer);
        };
        let Some(client) = self.renew(version).await else {
            return Ok(answer);
        };
        client.send(Request::from_parts(parts, body)).await
    }

    fn current(&self) -> (Client, u64) {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.clone()
    }

    /// A client with credentials that are newer than those of `version`.
    async fn renew(&self, version: u64) -> Option<Client> {
        let _reading = self.reading.lock().await;
        let (client, now) = self.current();
        if now != version {
            return Some(client);
        }
        tracing::debug!("the credentials are refused: reading them again");
        let built = match load(&self.source) {
            Ok(config) => build(config).await,
            Err(error) => Err(error),
        };
        match built {
            Ok(client) => {
                let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
                *current = (client.clone(), version + 1);
                Some(client)
            }
            Err(error) => {
                tracing::warn!(%error, "the credentials cannot be read again");
                None
            }
        }
    }
}
