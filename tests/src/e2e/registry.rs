//! A registry that knows an image index and, behind a password, an image; or that
//! is not well, or never answers: enough to say "unauthorized", "not for this
//! platform" or nothing, as real ones do. On the loopback, where a container
//! runtime expects no TLS.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use podcradle_launcher::name;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Error, Result, Trying, hexadecimal};
use crate::serving::Serving;

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// Whoever `podcradle` is has this one.
const PASSWORD: &str = "a-password-of-the-registry";
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
    files: Files,
}

/// By path, which ends in a tag or a digest: the type, and what it is.
type Files = BTreeMap<String, (&'static str, Vec<u8>)>;

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

    /// One that gives `podcradle/busybox:1`, the image of this machine's
    /// architecture in `archive`, to whoever has its password.
    pub fn locked(archive: &Path, image: &str) -> Result<Self> {
        let mut content = manifests();
        content.extend(image_of(archive, image)?);
        Self::with(Manner::Private, content)
    }

    /// A Secret to pull with from here, with its password or with another one.
    pub fn pull_secret(&self, name: &str, right: bool) -> Value {
        let password = if right { PASSWORD } else { "another" };
        let registry = self.serving.address().to_string();
        let auth = STANDARD.encode(format!("podcradle:{password}"));
        let config = json!({ "auths": { registry: { "auth": auth } } }).to_string();
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name },
            "type": "kubernetes.io/dockerconfigjson",
            "stringData": { ".dockerconfigjson": config },
        })
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
        Self::with(manner, manifests())
    }

    fn with(manner: Manner, files: Files) -> Result<Self> {
        let content = Arc::new(Content { manner, files });
        let router = axum::Router::new().fallback(answer).with_state(content);
        let serving = Serving::router(("127.0.0.1", 0), router).trying("start a registry")?;
        Ok(Self { serving })
    }

    /// The image of this name in it.
    pub fn image(&self, name: &str) -> String {
        format!("{}/podcradle/{name}:1", self.serving.address())
    }
}

fn manifests() -> Files {
    let bytes = |value: &Value| value.to_string().into_bytes();
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

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hexadecimal(&Sha256::digest(bytes)))
}

/// The image of this name in an archive as docker saves it, with a mark of its
/// own: what a kubelet has once pulled with a password it lets nobody have
/// without, by whatever name.
fn image_of(archive: &Path, image: &str) -> Result<Files> {
    let reading = || format!("read {}", archive.display());
    let mut parts: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut tar = tar::Archive::new(std::fs::File::open(archive).trying(reading())?);
    for entry in tar.entries().trying(reading())? {
        let mut entry = entry.trying(reading())?;
        let path = entry.path().trying(reading())?.display().to_string();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).trying(reading())?;
        parts.insert(path, bytes);
    }
    let part = |name: &Value| {
        let found = name.as_str().and_then(|name| parts.get(name)).cloned();
        found.ok_or_else(|| Error::Missing(format!("no {name} in {}", archive.display())))
    };
    let images = part(&json!("manifest.json"))?;
    let images: Value = serde_json::from_slice(&images).unwrap_or_default();
    let mut images = images.as_array().into_iter().flatten();
    let found = images.find(|one| one["RepoTags"][0] == image);
    let found = found.unwrap_or(&Value::Null);
    let (config, layer) = (part(&found["Config"])?, part(&found["Layers"][0])?);
    let mut config: Value = serde_json::from_slice(&config).unwrap_or_default();
    config["config"]["Labels"]["podcradle.test/mark"] = json!(name::random_hex(8));
    let config = config.to_string().into_bytes();
    let described = |kind: &str, bytes: &[u8]| {
        let kind = format!("application/vnd.oci.image.{kind}");
        json!({ "mediaType": kind, "size": bytes.len(), "digest": digest(bytes) })
    };
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST,
        "config": described("config.v1+json", &config),
        "layers": [described("layer.v1.tar", &layer)],
    });
    let manifest = manifest.to_string().into_bytes();
    let path = |kind: &str, reference: &str| format!("/v2/podcradle/busybox/{kind}/{reference}");
    let mut files = BTreeMap::new();
    for blob in [config, layer] {
        let at = path("blobs", &digest(&blob));
        files.insert(at, ("application/octet-stream", blob));
    }
    for reference in ["1", &digest(&manifest)] {
        files.insert(path("manifests", reference), (MANIFEST, manifest.clone()));
    }
    Ok(files)
}

async fn answer(State(content): State<Arc<Content>>, uri: Uri, headers: HeaderMap) -> Response {
    let said = headers.get("authorization").map(HeaderValue::as_bytes);
    let right = format!("Basic {}", STANDARD.encode(format!("podcradle:{PASSWORD}")));
    if content.manner == Manner::Private && said != Some(right.as_bytes()) {
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
    let Some((kind, body)) = content.files.get(uri.path()) else {
        let errors =
            json!({ "errors": [{ "code": "MANIFEST_UNKNOWN", "message": "manifest unknown" }] });
        return (StatusCode::NOT_FOUND, errors.to_string()).into_response();
    };
    let digest = digest(body);
    let headers = [
        ("content-type", (*kind).to_owned()),
        ("docker-content-digest", digest),
    ];
    (headers, body.clone()).into_response()
}
