//! A registry that knows image indexes alone, behind a password when a test
//! wants one, or that never answers: enough to say "unauthorized", "not for this
//! platform" or nothing, as real ones do. On the loopback, where a container
//! runtime expects no TLS.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Result, Trying, hexadecimal};
use crate::serving::Serving;

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// A running registry; dropping it ends it.
pub struct Registry {
    serving: Serving,
}

/// How it answers whoever asks for an image.
#[derive(PartialEq, Eq)]
enum Manner {
    Open,
    Private,
    Stalling,
    Failing,
}

struct Content {
    manner: Manner,
    /// `podcradle/NAME:TAG` as the path of its manifest, and digests.
    manifests: BTreeMap<String, (&'static str, Vec<u8>)>,
}

impl Registry {
    /// One without a password, where `podcradle/foreign:1` is an index for
    /// riscv64 alone.
    pub fn serve() -> Result<Self> {
        Self::start(Manner::Open)
    }

    /// One that nobody has the password of.
    pub fn private() -> Result<Self> {
        Self::start(Manner::Private)
    }

    /// One that takes each question for an image, and never answers.
    pub fn stalling() -> Result<Self> {
        Self::start(Manner::Stalling)
    }

    /// One that is not well: 503 for each image.
    pub fn failing() -> Result<Self> {
        Self::start(Manner::Failing)
    }

    fn start(manner: Manner) -> Result<Self> {
        let content = Arc::new(Content {
            manner,
            manifests: manifests(),
        });
        let router = axum::Router::new().fallback(answer).with_state(content);
        let serving = Serving::router(("127.0.0.1", 0), router).trying("start a registry")?;
        Ok(Self { serving })
    }

    /// The image of this name in it.
    pub fn image(&self, name: &str) -> String {
        format!("{}/podcradle/{name}:1", self.serving.address())
    }
}

fn manifests() -> BTreeMap<String, (&'static str, Vec<u8>)> {
    let bytes = |value: &Value| value.to_string().into_bytes();
    let digest = |bytes: &[u8]| format!("sha256:{}", hexadecimal(&Sha256::digest(bytes)));
    let manifest = bytes(&json!({
        "schemaVersion": 2, "mediaType": MANIFEST, "layers": [],
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "size": 2, "digest": digest(b"{}"),
        },
    }));
    let index = bytes(&json!({
        "schemaVersion": 2, "mediaType": INDEX,
        "manifests": [{
            "mediaType": MANIFEST, "size": manifest.len(), "digest": digest(&manifest),
            "platform": { "os": "linux", "architecture": "riscv64" },
        }],
    }));
    let path = |reference: &str| format!("/v2/podcradle/foreign/manifests/{reference}");
    BTreeMap::from([
        (path(&digest(&manifest)), (MANIFEST, manifest)),
        (path(&digest(&index)), (INDEX, index.clone())),
        (path("1"), (INDEX, index)),
    ])
}

async fn answer(State(content): State<Arc<Content>>, uri: Uri, headers: HeaderMap) -> Response {
    if content.manner == Manner::Private && !headers.contains_key("authorization") {
        let challenge = [("www-authenticate", r#"Basic realm="podcradle""#)];
        return (StatusCode::UNAUTHORIZED, challenge).into_response();
    }
    if uri.path() == "/v2/" {
        return StatusCode::OK.into_response();
    }
    if content.manner == Manner::Stalling {
        return std::future::pending().await;
    }
    if content.manner == Manner::Failing {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let Some((kind, body)) = content.manifests.get(uri.path()) else {
        let errors =
            json!({ "errors": [{ "code": "MANIFEST_UNKNOWN", "message": "manifest unknown" }] });
        return (StatusCode::NOT_FOUND, errors.to_string()).into_response();
    };
    let digest = format!("sha256:{}", hexadecimal(&Sha256::digest(body)));
    let headers = [
        ("content-type", (*kind).to_owned()),
        ("docker-content-digest", digest),
    ];
    (headers, body.clone()).into_response()
}
