//! The one place that maps what an API server answered to what it means.
//! Pure: a `kube::Error` in, an [`Error`] that names object and next step out.

use std::fmt;
use std::time::Duration;

use hyper_util::client::legacy::Error as Http;
use kube::core::Status;
use tokio::time::error::Elapsed;

use super::ConfigError;

/// What was asked of the API server, for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// `create`, `get`, …, as RBAC names it.
    pub verb: &'static str,
    /// `pods`, `secrets`, …, as RBAC names it.
    pub resource: &'static str,
    /// Namespace it was asked in; empty for what is the cluster's.
    pub namespace: String,
    /// Object, or empty for a collection.
    pub name: String,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{} {} {}", self.verb, self.resource, self.name)
        } else if self.name.is_empty() {
            write!(
                f,
                "{} {} in namespace {}",
                self.verb, self.resource, self.namespace
            )
        } else {
            write!(
                f,
                "{} {} {}/{}",
                self.verb, self.resource, self.namespace, self.name
            )
        }
    }
}

impl Call {
    /// The manifest with the right to it.
    fn granted_by(&self) -> &'static str {
        if self.resource == "nodes" {
            "the ClusterRole in deploy/nodes"
        } else {
            "the Role in deploy/role.yaml"
        }
    }
}

/// Why a call to the API server did not do what was asked.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No answer, or none that is the API server's.
    #[error("{call}: no answer from the API server {server}: {message}")]
    Unreachable {
        /// The call.
        call: Call,
        /// Its URL.
        server: String,
        /// What the transport said.
        message: String,
        /// Whether the request may have reached it.
        sent: bool,
    },
    /// An answer, by somebody whose certificate does not verify.
    #[error("{call}: the certificate of the API server {server} does not verify: {message}")]
    Untrusted {
        /// The call.
        call: Call,
        /// Its URL.
        server: String,
        /// What is wrong with it.
        message: String,
    },
    /// No answer within the time there was.
    #[error("{call}: {}", no_answer(server, *after))]
    TimedOut {
        /// The call.
        call: Call,
        /// The API server's URL.
        server: String,
        /// How long was waited; nothing when the time was over before.
        after: Duration,
    },
    /// Deleted, but not gone within the time there was.
    #[error(
        "{call}: accepted, but a Pod is still there after {after:?}; the cluster goes on by itself (a lost node keeps it: kubectl get pod -o wide)"
    )]
    StillThere {
        /// The call.
        call: Call,
        /// How long was waited.
        after: Duration,
    },
    /// 401, or there are no credentials to send any more.
    #[error("{call}: {message}")]
    Unauthorized {
        /// The call.
        call: Call,
        /// What is wrong with them.
        message: String,
    },
    /// 403 by RBAC.
    #[error("{call}: not allowed; {} grants it ({message})", call.granted_by())]
    Denied {
        /// The call.
        call: Call,
        /// What it said.
        message: String,
    },
    /// 403 by a quota.
    #[error("{call}: {message}")]
    Quota {
        /// The call.
        call: Call,
        /// The quota, as quoted.
        message: String,
    },
    /// Refused by admission: Pod Security, `LimitRange`, a webhook.
    #[error("{call}: refused by a policy of the cluster: {message}")]
    Policy {
        /// The call.
        call: Call,
        /// The rule, as quoted.
        message: String,
    },
    /// A webhook of the cluster has no answer: nothing was written.
    #[error("{call}: a webhook of the cluster does not answer: {message}")]
    Webhook {
        /// The call.
        call: Call,
        /// Which, as quoted.
        message: String,
    },
    /// The namespace does not exist or is being deleted.
    #[error("{call}: {message}")]
    Namespace {
        /// The call.
        call: Call,
        /// What it said.
        message: String,
    },
    /// 404.
    #[error("{call}: does not exist")]
    NotFound {
        /// The call.
        call: Call,
    },
    /// 409, exists already.
    #[error("{call}: exists already")]
    Exists {
        /// The call.
        call: Call,
    },
    /// 409, by what belongs to another owner of the same name, which is gone: the
    /// collector takes it.
    #[error("{call}: one of before is still there, until the cluster's collector takes it")]
    Leftover {
        /// The call.
        call: Call,
    },
    /// 409, someone else wrote first, or a precondition does not hold.
    #[error("{call}: changed meanwhile: {message}")]
    Conflict {
        /// The call.
        call: Call,
        /// What it said.
        message: String,
    },
    /// 410: the resource version is too old to watch from.
    #[error("{call}: the watch's place is gone")]
    Gone {
        /// The call.
        call: Call,
    },
    /// 403, since the Pod names something that is not there.
    #[error("{call}: {field} names what does not exist: {message}")]
    Missing {
        /// The call.
        call: Call,
        /// The field of the spec, with its flag.
        field: &'static str,
        /// What it said.
        message: String,
    },
    /// 422 and 400: the object itself is wrong.
    #[error("{call}: {message}")]
    Invalid {
        /// The call.
        call: Call,
        /// What it said.
        message: String,
    },
    /// 429, 5xx, and a creation that met others: worth another try.
    #[error("{call}: the API server is busy or failing ({code}): {message}")]
    Busy {
        /// The call.
        call: Call,
        /// HTTP status.
        code: u16,
        /// What it said.
        message: String,
        /// `Retry-After`, when it said so.
        retry_after: Option<Duration>,
    },
    /// The answer could not be read. Its body is not shown: it may be a Secret.
    #[error("{call}: the answer is not what this API gives")]
    Unreadable {
        /// The call.
        call: Call,
    },
}

impl Error {
    /// Whether another try may help: a denial's too, in an operation under way,
    /// since an API server that has just started knows no Roles yet.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. }
                | Self::TimedOut { .. }
                | Self::Busy { .. }
                | Self::Denied { .. }
        )
    }

    /// Whether somebody else may make it possible: worth waiting for, and worth
    /// saying so meanwhile.
    pub fn may_pass(&self) -> bool {
        matches!(
            self,
            Self::Quota { .. } | Self::Webhook { .. } | Self::Leftover { .. }
        )
    }

    /// Whether a write may have happened although it seems to have failed.
    pub fn is_ambiguous(&self) -> bool {
        match self {
            Self::Unreachable { sent, .. } => *sent,
            Self::TimedOut { .. } | Self::Unreadable { .. } => true,
            Self::Busy { code, .. } => *code >= 500,
            _ => false,
        }
    }

    /// `Retry-After`, when the API server said so.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Busy { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

fn no_answer(server: &str, after: Duration) -> String {
    if after.is_zero() {
        return "not tried, since the time for it was over".to_owned();
    }
    format!("no answer from the API server {server} within {after:?}")
}

/// What `error` means for `call` to `server`.
pub fn classify(call: Call, server: &str, error: &kube::Error) -> Error {
    match error {
        kube::Error::Api(status) => return by_status(call, status),
        kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => return Error::Unreadable { call },
        _ => {}
    }
    // An exec plugin that fails, a token file that is gone.
    if let Some(without) = find::<ConfigError>(error) {
        let message = format!("no credentials: {without}");
        return Error::Unauthorized { call, message };
    }
    let (server, message) = (server.to_owned(), said(error));
    // In the words of the TLS library, of the proxy's too.
    if message.contains("invalid peer certificate") {
        return Error::Untrusted {
            call,
            server,
            message,
        };
    }
    Error::Unreachable {
        call,
        server,
        message,
        sent: !find::<Http>(error).is_some_and(Http::is_connect),
    }
}

/// What the transport says: the innermost cause ("connection refused"), and
/// whether it was on the way to the proxy, as far as that is not the server's.
fn said(error: &kube::Error) -> String {
    let cause = innermost(error);
    let inner = cause.downcast_ref::<std::io::Error>();
    let inner = inner.and_then(std::io::Error::get_ref);
    if inner.is_some_and(<dyn std::error::Error + Send + Sync>::is::<Elapsed>) {
        return format!("no connection within {:?}", super::REACH);
    }
    let tunnel = causes(error).any(|c| c.to_string().starts_with("tunnel error: failed"));
    if tunnel {
        return format!("the proxy itself: {cause}");
    }
    cause.to_string()
}

/// What a `Status` means for `call`; watches deliver it inside the stream.
pub fn by_status(call: Call, status: &Status) -> Error {
    let message = status.message.clone();
    match status.code {
        401 => Error::Unauthorized {
            call,
            message: format!("the API server does not accept the credentials: {message}"),
        },
        // In its words, whatever these are.
        403 if by_admission(&message) => Error::Policy { call, message },
        403 => forbidden(call, message),
        404 if message.contains("namespaces \"") => Error::Namespace { call, message },
        404 => Error::NotFound { call },
        409 if status.is_already_exists() => Error::Exists { call },
        // A quota that several creations count at once: nothing was written.
        409 if call.verb == "create" => Error::Busy {
            call,
            code: status.code,
            message,
            retry_after: None,
        },
        409 => Error::Conflict { call, message },
        410 => Error::Gone { call },
        // Admission comes before the write.
        500.. if message.contains("failed calling webhook") => Error::Webhook { call, message },
        429 | 500.. => {
            let seconds = status.details.as_ref().map_or(0, |d| d.retry_after_seconds);
            Error::Busy {
                call,
                code: status.code,
                message,
                retry_after: (seconds > 0).then(|| Duration::from_secs(seconds.into())),
            }
        }
        _ if by_admission(&message) => Error::Policy { call, message },
        _ => Error::Invalid { call, message },
    }
}

/// A policy of the cluster may refuse with any status.
fn by_admission(message: &str) -> bool {
    message.contains("admission webhook \"") || message.contains("ValidatingAdmissionPolicy '")
}

fn forbidden(call: Call, message: String) -> Error {
    if message.contains("exceeded quota") {
        Error::Quota { call, message }
    } else if message.contains("because it is being terminated") {
        Error::Namespace { call, message }
    } else if message.contains("\" cannot ") {
        Error::Denied { call, message }
    } else if let Some(field) = missing(&message) {
        Error::Missing {
            call,
            field,
            message,
        }
    } else {
        Error::Policy { call, message }
    }
}

/// The field whose value an admission plug-in of Kubernetes' own has not found.
fn missing(message: &str) -> Option<&'static str> {
    let plugins = [
        (
            "rejected: RuntimeClass \"",
            "runtimeClass (--runtime-class)",
        ),
        (
            "no PriorityClass with name ",
            "priorityClass (--priority-class)",
        ),
        (
            "error looking up service account ",
            "serviceAccount (--service-account)",
        ),
    ];
    let found = plugins.iter().find(|(says, _)| message.contains(says));
    found.map(|(_, field)| *field)
}

type Cause<'a> = &'a (dyn std::error::Error + 'static);

/// An error and what it comes from, from the outside in.
fn causes(error: Cause<'_>) -> impl Iterator<Item = Cause<'_>> {
    std::iter::successors(Some(error), |error| error.source())
}

fn find<E: std::error::Error + 'static>(error: Cause<'_>) -> Option<&E> {
    causes(error).find_map(|cause| cause.downcast_ref())
}

/// The innermost cause says what is wrong ("connection refused"); the layers
/// around it only say that something is.
pub(super) fn innermost(error: Cause<'_>) -> Cause<'_> {
    causes(error).last().unwrap_or(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> Call {
        Call {
            verb: "create",
            resource: "pods",
            namespace: "ns".into(),
            name: "a".into(),
        }
    }

    fn class(code: u16, reason: &str, message: &str) -> Error {
        by_status(call(), &Status::failure(message, reason).with_code(code))
    }

    #[test]
    fn a_403_is_told_apart_by_its_text() {
        let rbac = r#"pods is forbidden: User "u" cannot create resource "pods" in API group "" in the namespace "ns""#;
        assert!(matches!(
            class(403, "Forbidden", rbac),
            Error::Denied { .. }
        ));
        let quota = r#"pods "a" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1"#;
        assert!(matches!(
            class(403, "Forbidden", quota),
            Error::Quota { .. }
        ));
        let psa = r#"pods "a" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true"#;
        assert!(matches!(class(403, "Forbidden", psa), Error::Policy { .. }));
        for said in [
            r#"container "x" cannot run as root"#,
            "exceeded quota of GPUs",
        ] {
            let webhook =
                format!(r#"admission webhook "policy.example" denied the request: {said}"#);
            assert!(matches!(
                class(403, "Forbidden", &webhook),
                Error::Policy { .. }
            ));
        }
        let gone = r#"pods "a" is forbidden: unable to create new content in namespace ns because it is being terminated"#;
        assert!(matches!(
            class(403, "Forbidden", gone),
            Error::Namespace { .. }
        ));
    }

    #[test]
    fn a_certificate_that_does_not_verify_is_not_tried_again() {
        let said = std::io::Error::other("invalid peer certificate: UnknownIssuer");
        let error = kube::Error::Service(Box::new(said));
        let error = classify(call(), "https://api.example", &error);
        assert!(matches!(error, Error::Untrusted { .. }), "{error:?}");
        assert!(!error.is_transient() && !error.is_ambiguous());
        let hint = crate::Failure::from_error(&error).hint;
        assert!(hint.contains("certificate-authority"), "{hint}");
    }

    #[test]
    fn what_a_pod_names_and_is_not_there_is_told_by_its_field() {
        for (said, field) in [
            (
                r#"pod rejected: RuntimeClass "nope" not found"#,
                "--runtime-class",
            ),
            (
                "no PriorityClass with name nope was found",
                "--priority-class",
            ),
            (
                r#"error looking up service account ns/nope: serviceaccount "nope" not found"#,
                "--service-account",
            ),
        ] {
            let error = class(
                403,
                "Forbidden",
                &format!("pods \"a\" is forbidden: {said}"),
            );
            assert!(matches!(error, Error::Missing { .. }), "{error:?}");
            assert!(error.to_string().contains(field), "{error}");
        }
        // A webhook may say what it likes.
        let webhook = "admission webhook \"w\" denied the request: no PriorityClass with name x";
        let error = class(403, "Forbidden", webhook);
        assert!(matches!(error, Error::Policy { .. }), "{error:?}");
    }

    #[test]
    fn only_answers_that_leave_the_write_open_are_ambiguous() {
        assert!(class(500, "InternalError", "").is_ambiguous());
        assert!(class(504, "Timeout", "").is_ambiguous());
        assert!(!class(429, "TooManyRequests", "").is_ambiguous());
        assert!(!class(409, "AlreadyExists", "").is_ambiguous());
        assert!(class(429, "TooManyRequests", "").is_transient());
    }

    #[tokio::test]
    async fn a_call_without_any_time_left_is_not_made_and_no_fault_of_the_server() {
        use crate::cluster::{Cluster, Deadline};
        let cluster = Cluster::of(|_| async { panic!("it was made") });
        let error = cluster.pods(None, Deadline::after(Duration::ZERO)).await;
        let error = error.unwrap_err();
        assert!(error.to_string().contains("not tried"), "{error}");
        let failure = crate::Failure::from_error(&error);
        assert_eq!(failure.reason, crate::Reason::TimedOut);
    }

    #[test]
    fn a_creation_that_met_others_at_a_quota_is_tried_again() {
        let quota = "Operation cannot be fulfilled on resourcequotas \"q\": the object has been modified; please apply your changes to the latest version and try again";
        let error = class(409, "Conflict", quota);
        assert!(error.is_transient() && !error.is_ambiguous(), "{error:?}");
    }

    #[test]
    fn conflict_and_exists_are_two_things() {
        assert!(matches!(
            class(409, "AlreadyExists", ""),
            Error::Exists { .. }
        ));
        let patch = Call {
            verb: "patch",
            ..call()
        };
        let conflict = Status::failure("", "Conflict").with_code(409);
        assert!(matches!(
            by_status(patch, &conflict),
            Error::Conflict { .. }
        ));
        assert!(matches!(
            class(404, "NotFound", "namespaces \"x\" not found"),
            Error::Namespace { .. }
        ));
        assert!(matches!(
            class(404, "NotFound", "pods \"x\" not found"),
            Error::NotFound { .. }
        ));
    }
}
