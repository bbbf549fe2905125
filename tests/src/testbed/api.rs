//! What the boot asks the API server: whether it is ready, and, by a watch,
//! when the node is.

use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::api::{Api, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, Resource};
use serde::de::DeserializeOwned;

use super::error::{Error, Result};

/// A connection, with the small runtime that drives it.
pub(super) struct ApiServer {
    runtime: tokio::runtime::Runtime,
    client: Client,
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Api(error.to_string())
}

impl ApiServer {
    /// Reads the kubeconfig; connects when first asked something.
    pub fn new(kubeconfig: &Path) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed)?;
        let kubeconfig = Kubeconfig::read_from(kubeconfig).map_err(failed)?;
        let client = runtime.block_on(async {
            let options = KubeConfigOptions::default();
            let mut config = Config::from_custom_kubeconfig(kubeconfig, &options)
                .await
                .map_err(failed)?;
            // Loopback is never reached through a proxy.
            config.proxy_url = None;
            Client::try_from(config).map_err(failed)
        })?;
        Ok(Self { runtime, client })
    }

    /// Whether it says it is ready.
    pub fn ready(&self) -> Result<()> {
        let request = axum::http::Request::get("/readyz")
            .body(Vec::new())
            .map_err(failed)?;
        let answer = async {
            tokio::time::timeout(Duration::from_secs(5), self.client.request_text(request)).await
        };
        match self.runtime.block_on(answer) {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(failed(error)),
            Err(_) => Err(failed("no answer to /readyz within 5 s")),
        }
    }

    /// Watches for at most `patience` until the node is Ready and takes pods;
    /// says whether it does.
    pub fn node_ready(&self, name: &str, patience: Duration) -> Result<bool> {
        let api: Api<Node> = Api::all(self.client.clone());
        self.watch(&api, name, patience, |node: &Node| {
            let ready = node
                .status
                .iter()
                .flat_map(|status| status.conditions.iter().flatten())
                .any(|condition| condition.type_ == "Ready" && condition.status == "True");
            let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
            ready && taints.is_none_or(Vec::is_empty)
        })
    }

    /// The same for the service account no pod can do without.
    pub fn service_account(&self, patience: Duration) -> Result<bool> {
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), "default");
        self.watch(&api, "default", patience, |_| true)
    }

    fn watch<K>(
        &self,
        api: &Api<K>,
        name: &str,
        patience: Duration,
        good: impl Fn(&K) -> bool,
    ) -> Result<bool>
    where
        K: Resource + Clone + std::fmt::Debug + DeserializeOwned,
    {
        let params = WatchParams::default().fields(&format!("metadata.name={name}"));
        let until_good = async {
            // From version 0: what is there comes first, then every change.
            let mut events = pin!(api.watch(&params, "0").await.map_err(failed)?);
            while let Some(event) = events.try_next().await.map_err(failed)? {
                match event {
                    WatchEvent::Added(object) | WatchEvent::Modified(object) if good(&object) => {
                        return Ok(true);
                    }
                    WatchEvent::Error(status) => return Err(failed(status.message)),
                    _ => {}
                }
            }
            Ok(false)
        };
        let limited = async { tokio::time::timeout(patience, until_good).await };
        self.runtime.block_on(limited).unwrap_or(Ok(false))
    }
}
