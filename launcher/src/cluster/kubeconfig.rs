//! One context of a kubeconfig → a client's configuration. Ours and not the
//! client library's, which takes proxies from the environment on its own and
//! compares `NO_PROXY` with the wrong address.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use kube::config::{AuthInfo, Cluster, ExecAuthCluster, Kubeconfig};

use super::proxy;

/// The configuration of `context`, or of the current one, and its name.
///
/// # Errors
/// One line that names what is missing or wrong, and what there is.
pub fn configuration(
    kubeconfig: &Kubeconfig,
    context: Option<&str>,
) -> Result<(kube::Config, String), String> {
    let name = context
        .or(kubeconfig.current_context.as_deref())
        .filter(|name| !name.is_empty())
        .ok_or("has no current-context; name one with --context")?;
    let contexts = &kubeconfig.contexts;
    let found = contexts.iter().find(|c| c.name == name);
    let context = found.and_then(|c| c.context.as_ref()).ok_or_else(|| {
        let known: Vec<_> = contexts.iter().map(|c| c.name.as_str()).collect();
        format!("has no context {name:?}; it has {}", list(&known))
    })?;
    let clusters = &kubeconfig.clusters;
    let found = clusters.iter().find(|c| c.name == context.cluster);
    let cluster = found.and_then(|c| c.cluster.as_ref()).ok_or_else(|| {
        format!(
            "context {name:?}: there is no cluster {:?}",
            context.cluster
        )
    })?;
    // A user that is not there is nobody, as for kubectl.
    let user = context.user.as_deref().unwrap_or_default();
    let users = kubeconfig.auth_infos.iter();
    let user = users
        .filter(|u| u.name == user)
        .find_map(|u| u.auth_info.clone())
        .unwrap_or_default();
    let mut config = of_cluster(cluster, user)?;
    if let Some(namespace) = &context.namespace {
        config.default_namespace.clone_from(namespace);
    }
    Ok((config, name.to_owned()))
}

fn list(names: &[&str]) -> String {
    if names.is_empty() {
        return "none".to_owned();
    }
    names.join(", ")
}

fn of_cluster(cluster: &Cluster, mut user: AuthInfo) -> Result<kube::Config, String> {
    let server = cluster.server.as_deref().unwrap_or_default();
    let wrong = || format!("server {server:?}: must be https://HOST:PORT");
    let url: Uri = server.parse().map_err(|_| wrong())?;
    if url.host().is_none() || url.scheme().is_none() {
        return Err(wrong());
    }
    // It reads the authority too, from the file or from the field.
    let known = ExecAuthCluster::try_from(cluster).map_err(|error| error.to_string())?;
    let authority = known.certificate_authority_data.as_deref();
    let mut config = kube::Config::new(url.clone());
    config.root_cert = authority.map(certificates).transpose()?;
    config.accept_invalid_certs = cluster.insecure_skip_tls_verify.unwrap_or(false);
    config.disable_compression = cluster.disable_compression.unwrap_or(false);
    config.tls_server_name.clone_from(&cluster.tls_server_name);
    config.proxy_url = proxy::decide(&url, cluster.proxy_url.as_deref(), |name| {
        std::env::var(name).ok()
    })
    .map_err(|error| error.to_string())?;
    if let Some(exec) = user.exec.as_mut().filter(|exec| exec.provide_cluster_info) {
        exec.cluster = Some(known);
    }
    config.auth_info = user;
    Ok(config)
}

/// The certificates of a PEM file, each as DER.
fn certificates(pem: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    let wrong = || "certificate-authority: is no PEM certificate".to_owned();
    let text = std::str::from_utf8(pem).map_err(|_| wrong())?;
    let blocks = text.split(BEGIN).skip(1);
    let found = blocks.map(|block| {
        let (body, _) = block.split_once(END)?;
        let body: String = body.split_whitespace().collect();
        STANDARD.decode(body).ok()
    });
    let found: Vec<_> = found.collect::<Option<_>>().ok_or_else(wrong)?;
    if found.is_empty() {
        return Err(wrong());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig(text: &str) -> Kubeconfig {
        Kubeconfig::from_yaml(text).unwrap()
    }

    const TWO: &str = "
apiVersion: v1
kind: Config
current-context: a
clusters:
- {name: one, cluster: {server: 'https://one:6443', certificate-authority-data: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBRUMKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=}}
- {name: two, cluster: {server: 'two', tls-server-name: x}}
users:
- {name: me, user: {token: t}}
contexts:
- {name: a, context: {cluster: one, user: me, namespace: team}}
- {name: b, context: {cluster: two, user: me}}
- {name: c, context: {cluster: three, user: me}}
";

    #[test]
    fn a_context_leads_to_server_authority_user_and_namespace() {
        let (config, name) = configuration(&kubeconfig(TWO), None).unwrap();
        assert_eq!(name, "a");
        assert_eq!(config.cluster_url.to_string(), "https://one:6443/");
        assert_eq!(config.default_namespace, "team");
        assert_eq!(config.root_cert, Some(vec![vec![0, 1, 2]]));
        assert!(config.auth_info.token.is_some());
    }

    #[test]
    fn what_is_wrong_is_named() {
        let kubeconfig = kubeconfig(TWO);
        for (context, texts) in [
            ("d", &["\"d\"", "a, b, c"][..]),
            ("b", &["server \"two\"", "https://"]),
            ("c", &["cluster \"three\""]),
        ] {
            let problem = configuration(&kubeconfig, Some(context)).unwrap_err();
            for text in texts {
                assert!(problem.contains(text), "{problem}");
            }
        }
        let none = Kubeconfig::default();
        assert!(
            configuration(&none, None)
                .unwrap_err()
                .contains("--context")
        );
    }
}
