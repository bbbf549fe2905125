//! A validating webhook for the Pod of one name: it refuses, or never answers.

use std::time::{Duration, Instant};

use axum::http::Response;
use base64::Engine as _;
use serde_json::{Value, json};

use super::kubectl::Kubectl;
use super::middle::{serve_tls, tls};
use super::{Actor, Error, Result, Trying, WATCHDOG};
use crate::serving::Serving;

/// What the webhook does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Webhook {
    /// Says no, and why.
    Refuses,
    /// Says nothing, until the API server gives up after a second.
    Hangs,
}

/// A webhook in force; dropping it takes it away.
pub struct Hooked<'a> {
    admin: &'a Kubectl,
    name: String,
    _serving: Serving,
}

impl<'a> Hooked<'a> {
    /// Starts it for the Pod of this name and waits until the API server asks it.
    pub fn start(actor: &'a Actor, pod: &str, what: Webhook) -> Result<Self> {
        let (acceptor, certificate) = tls()?;
        let serving = Serving::on(("127.0.0.1", 0), move |listener| {
            serve_tls(listener, acceptor, move |request| answer(what, request))
        })
        .trying("start a webhook")?;
        let address = serving.address();
        let name = format!("{pod}-hook");
        let hooked = Hooked {
            admin: &actor.cluster.admin,
            name: name.clone(),
            _serving: serving,
        };
        let authority = base64::engine::general_purpose::STANDARD.encode(certificate);
        hooked.admin.create(&json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": { "name": name },
            "webhooks": [{
                "name": "hook.podcradle.test",
                "clientConfig": { "url": format!("https://{address}/"), "caBundle": authority },
                "rules": [{
                    "apiGroups": [""], "apiVersions": ["v1"],
                    "operations": ["CREATE"], "resources": ["pods"],
                }],
                "matchConditions": [{
                    "name": "this-pod", "expression": format!("object.metadata.name == {pod:?}"),
                }],
                "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "failurePolicy": "Fail", "timeoutSeconds": 1,
            }],
        }))?;
        hooked.wait(pod)?;
        Ok(hooked)
    }

    /// The API server learns of it by a watch of its own: ask, without creating.
    fn wait(&self, pod: &str) -> Result<()> {
        let end = Instant::now() + WATCHDOG;
        loop {
            let probe = json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": { "name": pod },
                "spec": { "containers": [{ "name": "c", "image": "image" }] },
            });
            // Pod Security refuses this Pod too, but only after the webhooks
            // that come before it in the API server's order.
            let answer = self.admin.try_send(
                &["create", "--namespace=default", "--dry-run=server"],
                &probe,
            )?;
            if answer.stderr.contains("webhook") {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(Error::Watchdog {
                    what: format!("webhook {} in force", self.name),
                    watchdog: WATCHDOG,
                    so_far: answer.stderr,
                });
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Hooked<'_> {
    fn drop(&mut self) {
        let kind = "validatingwebhookconfiguration";
        let _ = self
            .admin
            .try_run(&["delete", kind, &self.name, "--ignore-not-found=true"]);
    }
}

async fn answer(
    what: Webhook,
    request: axum::http::Request<hyper::body::Incoming>,
) -> std::io::Result<Response<axum::body::Body>> {
    if what == Webhook::Hangs {
        std::future::pending::<()>().await;
    }
    let body = axum::body::to_bytes(axum::body::Body::new(request.into_body()), 16 << 20).await;
    let review: Value = serde_json::from_slice(&body.map_err(std::io::Error::other)?)?;
    let answer = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {
            "uid": review["request"]["uid"], "allowed": false,
            "status": { "code": 403, "message": "images must come from the vetted registry" },
        },
    });
    let mut response = Response::new(axum::body::Body::from(answer.to_string()));
    response.headers_mut().insert(
        "content-type",
        axum::http::HeaderValue::from_static("application/json"),
    );
    Ok(response)
}
