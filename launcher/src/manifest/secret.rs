//! The token's Secret: immutable, owned by the Pod that uses it, named after
//! the generation so that a start never meets its predecessor's.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Owner, labels, owner_reference};
use crate::spec::{SandboxSpec, TOKEN_KEY};
use crate::token::Token;

/// `<sandbox>-g<N>-token`.
pub fn secret_name(sandbox: &str, generation: u32) -> String {
    format!("{sandbox}-g{generation}-token")
}

/// The token's Secret, owned by `pod`.
pub fn secret(spec: &SandboxSpec, generation: u32, pod: &Owner, token: &Token) -> Secret {
    let value = ByteString(token.expose().as_bytes().to_vec());
    Secret {
        metadata: ObjectMeta {
            name: Some(secret_name(&spec.sandbox, generation)),
            labels: Some(labels(spec, generation)),
            owner_references: Some(vec![owner_reference("Pod", pod)]),
            ..ObjectMeta::default()
        },
        immutable: Some(true),
        type_: Some("Opaque".to_owned()),
        data: Some([(TOKEN_KEY.to_owned(), value)].into()),
        ..Secret::default()
    }
}
