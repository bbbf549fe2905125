//! Calls whose answers may hold a Secret. The client logs what it cannot read,
//! whole: so these answers are asked for without their data, are read here, and
//! no word of theirs is logged or shown that is not a Status' message.

use http::{HeaderValue, header};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, PostParams, Preconditions, PropagationPolicy};
use kube::client::Body;
use kube::core::{Request, Status};
use kube::{Resource, ResourceExt};
use serde::Deserialize;
use serde::de::Error as _;

use super::objects::may_be_created;
use super::{Cluster, Deadline, Deletion, Error, Pause, wait_before_retry};
use crate::manifest::{Owner, SESSION};
use crate::token::Token;

/// Of an object nothing but its metadata.
const METADATA: HeaderValue =
    HeaderValue::from_static("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");

/// All that is read of an answer: an object's metadata, or none of a Status.
#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    metadata: ObjectMeta,
}

impl Cluster {
    /// Creates the token's Secret, which belongs to `pod`; its uid. It is not
    /// readable to us. When its name is taken, its metadata say by what: by our
    /// own after an answer that was lost, or by that of a Pod of before.
    ///
    /// # Errors
    /// [`Error::Leftover`] when it is that of another Pod of this name: the
    /// collector takes it, if `pod` is the one that is there. [`Error::Exists`]
    /// when it is something else.
    pub(crate) async fn create_secret(
        &self,
        secret: &Secret,
        pod: &Owner,
        token: &Token,
        in_doubt: &mut bool,
        deadline: Deadline,
    ) -> Result<String, Error> {
        let name = secret.name_any();
        let call = self.what("create", "secrets", &name);
        let mut pause = Pause::SHORT;
        loop {
            let request = || {
                let body = serde_json::to_vec(secret).map_err(kube::Error::SerdeError)?;
                let made = self.path::<Secret>().create(&PostParams::default(), body);
                made.map_err(kube::Error::BuildRequest)
            };
            let made = self.sealed(request(), |text| token.redact(text));
            let error = match self.once(call.clone(), deadline, made).await {
                Ok(made) => return Ok(made.uid.unwrap_or_default()),
                Err(error) => error,
            };
            *in_doubt |= error.is_ambiguous();
            if matches!(error, Error::Exists { .. }) {
                let Some(found) = self.secret_there(&name, deadline).await? else {
                    continue;
                };
                let owners = found.owner_references.unwrap_or_default();
                if owners.iter().any(|owner| owner.uid == pod.uid) {
                    return Ok(found.uid.unwrap_or_default());
                }
                *in_doubt = false;
                // Of a Pod of the same name: two are never there at a time.
                let ours = found.labels.is_some_and(|l| l.contains_key(SESSION));
                let of_pod = owners.iter().any(|o| o.kind == "Pod" && o.name == pod.name);
                return Err(if ours && of_pod {
                    Error::Leftover { call }
                } else {
                    error
                });
            }
            if !may_be_created(&error) || !wait_before_retry(&error, &mut pause, deadline).await {
                return Err(error);
            }
        }
    }

    /// The metadata of a Secret that only may be created and deleted. A deletion
    /// that waits for dependents, tried dry, deletes nothing and answers with
    /// the object as it would be marked.
    async fn secret_there(
        &self,
        name: &str,
        deadline: Deadline,
    ) -> Result<Option<ObjectMeta>, Error> {
        let params = DeleteParams {
            dry_run: true,
            propagation_policy: Some(PropagationPolicy::Foreground),
            ..DeleteParams::default()
        };
        match self
            .sealed_delete::<Secret>("secrets", name, &params, deadline)
            .await
        {
            Ok(found) => Ok(Some(found)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Deletes the object of this name with this uid (and, when given, at this
    /// resource version).
    pub(crate) async fn delete<K>(
        &self,
        resource: &'static str,
        name: &str,
        preconditions: Preconditions,
        deadline: Deadline,
    ) -> Result<Deletion, Error>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        let params = DeleteParams {
            preconditions: Some(preconditions),
            ..DeleteParams::background()
        };
        match self
            .sealed_delete::<K>(resource, name, &params, deadline)
            .await
        {
            Ok(_) => Ok(Deletion::Accepted),
            Err(Error::NotFound { .. }) => Ok(Deletion::Absent),
            Err(error) => Err(error),
        }
    }

    async fn sealed_delete<K>(
        &self,
        resource: &'static str,
        name: &str,
        params: &DeleteParams,
        deadline: Deadline,
    ) -> Result<ObjectMeta, Error>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        let call = self.what("delete", resource, name);
        let request = || {
            let made = self.path::<K>().delete(name, params);
            let made = made.map_err(kube::Error::BuildRequest);
            let made = made.and_then(|made| dry(made, params.dry_run));
            self.sealed(made, str::to_owned)
        };
        self.repeat(call, deadline, request).await
    }

    fn path<K>(&self) -> Request
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Request::new(K::url_path(&(), Some(&self.namespace)))
    }

    /// Sends a request. Of an object that comes back the metadata; of a refusal
    /// the message, through `redact`.
    async fn sealed(
        &self,
        request: kube::Result<http::Request<Vec<u8>>>,
        redact: impl Fn(&str) -> String,
    ) -> kube::Result<ObjectMeta> {
        let mut request = request?.map(Body::from);
        request.headers_mut().insert(header::ACCEPT, METADATA);
        let answer = self.client.send(request).await?;
        let code = answer.status();
        let body = answer.into_body().collect_bytes().await?;
        if code.is_success() {
            let answer = serde_json::from_slice::<Answer>(&body);
            // What is wrong with it would quote it.
            let unread = |_| kube::Error::SerdeError(serde_json::Error::custom("no object"));
            return answer.map(|answer| answer.metadata).map_err(unread);
        }
        let mut status = serde_json::from_slice::<Status>(&body).unwrap_or_else(|_| {
            let reason = code.canonical_reason().unwrap_or_default();
            Status::failure(reason, "Unreadable").with_code(code.as_u16())
        });
        status.message = redact(&status.message);
        Err(kube::Error::Api(Box::new(status)))
    }
}

/// Says in the query too that nothing is to be done: a proxy that drops the body
/// of a DELETE would make it one that deletes.
fn dry(request: http::Request<Vec<u8>>, dry: bool) -> kube::Result<http::Request<Vec<u8>>> {
    if !dry {
        return Ok(request);
    }
    let (mut parts, body) = request.into_parts();
    let mark = if parts.uri.query().unwrap_or_default().is_empty() {
        "dryRun=All"
    } else {
        "&dryRun=All"
    };
    let separator = if parts.uri.query().is_some() { "" } else { "?" };
    parts.uri = format!("{}{separator}{mark}", parts.uri)
        .parse()
        .map_err(|error: http::uri::InvalidUri| kube::Error::HttpError(error.into()))?;
    Ok(http::Request::from_parts(parts, body))
}
