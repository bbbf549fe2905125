//! What a launch came to: a sandbox, or a failure with its cause, its evidence
//! and what to do next. A failed start is an outcome, not an error.

use std::fmt;

use serde::Serialize;

use crate::report::Report;

/// How a launch ended.
#[derive(Debug)]
pub enum Outcome {
    /// The host runs, as far as the spec waits for it.
    Launched(Box<Launched>),
    /// It does not; what was made is deleted.
    Failed(Box<Failure>),
}

/// A sandbox that was launched and handed over.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Launched {
    /// The sandbox.
    pub sandbox: String,
    /// Its session.
    pub session: String,
    /// Where it is.
    pub namespace: String,
    /// Uid of its Pod.
    pub pod_uid: String,
    /// Absolute path of the workspace in it.
    pub workspace: String,
    /// Identity its host reports.
    pub host_id: String,
    /// Name its host reports.
    pub host_name: String,
    /// The caller's idempotency key.
    pub launch_id: String,
    /// Which Pod of the sandbox.
    pub generation: u32,
    /// Whether an earlier attempt with the same launch id had begun it.
    pub adopted: bool,
    /// The fields in which it is not what this launch's spec asks for: it is as
    /// that earlier attempt has made it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub differs: Vec<String>,
    /// The Lease the session lives by, instead of an expiry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// When the session expires, RFC 3339; absent: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// How long it took.
    pub timings: Timings,
}

/// Milliseconds from the start of the launch.
#[derive(Debug, Clone, Copy, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Timings {
    /// Until our gate was off the Pod.
    pub gate_removed_ms: u64,
    /// Until the host was seen running (and ready, when it has a probe); absent
    /// when the spec does not wait for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_ms: Option<u64>,
}

/// Why a launch failed: stable, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub enum Reason {
    /// SIGINT, SIGTERM, or a caller that went away.
    Cancelled,
    /// The Lease of the session's owner is gone, or somebody else's.
    OwnerLost,
    /// There is no shared session of that name that a sandbox may go into.
    Session,
    /// The name belongs to something else.
    NameTaken,
    /// This launch id's sandbox is there, and is not what a new launch gives.
    AlreadyLaunched,
    /// Another process launches the same launch id, and came later.
    TakenOver,
    /// An admission plug-in took away what keeps the sandbox in.
    AdmissionChanged,
    /// Refused by Pod Security, a `LimitRange` or a webhook.
    Policy,
    /// A quota is exhausted.
    Quota,
    /// RBAC does not allow a call.
    Denied,
    /// The API server does not accept the credentials.
    Unauthorized,
    /// The namespace is missing or terminating.
    Namespace,
    /// The API server cannot be reached or does not answer.
    Unreachable,
    /// The API server refuses the object.
    Invalid,
    /// No node was found in time.
    Unschedulable,
    /// The image has no variant for the node's architecture.
    Platform,
    /// The image cannot be pulled.
    ImagePull,
    /// The image's name is wrong, or it may not be pulled.
    ImageName,
    /// A container cannot be set up (a missing Secret, for instance).
    ContainerConfig,
    /// The runtime could not start a container.
    StartError,
    /// workspace-prep failed (a clone, for instance).
    InitFailed,
    /// The host ended before it was ready.
    HostEnded,
    /// A container was killed for its memory.
    OutOfMemory,
    /// The Pod's maximum lifetime ran out.
    LifetimeExceeded,
    /// Somebody deleted the Pod.
    DeletedBySomeone,
    /// The node was lost or the Pod evicted.
    Evicted,
    /// A budget ran out.
    TimedOut,
    /// The caller's callback gave no token, or none that can be used.
    Token,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A launch that failed.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// The sandbox, by the name it had last; empty when it has none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sandbox: String,
    /// Why, for programs.
    pub reason: Reason,
    /// What happened, to what, and why.
    pub message: String,
    /// What to do next.
    pub hint: String,
    /// The Pod's events, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<String>,
    /// Tail of the log of the container concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// The supervisor's report, when it left one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<Report>,
    /// What of events, log and node could not be read, and why: a right that is
    /// missing, for instance.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
    /// Whether all that was made is deleted. Not so when a launch again fails
    /// whose sandbox was launched before: that one stays.
    pub cleaned_up: bool,
    /// What could not be deleted, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<String>,
}

/// What to do about a refusal, by whose it is.
fn policy_hint(message: &str) -> &'static str {
    if message.contains("violates PodSecurity") {
        "the namespace's Pod Security level must allow what the message names; Podcradle's own Pods need no more than restricted"
    } else if message.contains(" usage per ") || message.contains(" limit to request ratio ") {
        "ask for what the LimitRange allows: --cpu-request, --cpu-limit, --memory-request, --memory-limit"
    } else {
        "change the spec so that the policy allows it, or ask whoever runs the cluster"
    }
}

impl Failure {
    /// A failure without evidence; nothing was made yet.
    pub fn new(reason: Reason, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            sandbox: String::new(),
            reason,
            message: message.into(),
            hint: hint.into(),
            events: Vec::new(),
            log: None,
            report: None,
            unread: Vec::new(),
            cleaned_up: true,
            left: Vec::new(),
        }
    }

    /// The failure a call's error comes to.
    pub fn from_error(error: &crate::cluster::Error) -> Self {
        use crate::cluster::Error as E;
        let (reason, hint) = match error {
            E::Unreachable { .. } | E::Unreadable { .. } => (
                Reason::Unreachable,
                "check the server's address in the kubeconfig, and the network",
            ),
            E::Untrusted { .. } => (
                Reason::Unreachable,
                "check certificate-authority in the kubeconfig (SSL_CERT_FILE where it has none), and that the address is the server's",
            ),
            E::TimedOut { after, .. } if after.is_zero() => {
                (Reason::TimedOut, "give more time with --timeout")
            }
            E::TimedOut { .. } | E::StillThere { .. } | E::Busy { .. } => (
                Reason::Unreachable,
                "try again, or give more time with --timeout",
            ),
            E::Unauthorized { .. } => (
                Reason::Unauthorized,
                "renew the credentials in the kubeconfig",
            ),
            E::Denied { .. } => (Reason::Denied, "have the cluster's operator apply deploy/"),
            E::Quota { .. } => (Reason::Quota, "delete sandboxes, or have the quota raised"),
            E::Policy { message, .. } => (Reason::Policy, policy_hint(message)),
            E::Webhook { .. } => (
                Reason::Policy,
                "tell whoever runs the cluster: nothing can be launched while it is down",
            ),
            E::Namespace { .. } => (
                Reason::Namespace,
                "name another namespace with -n, or create it with deploy/",
            ),
            E::Leftover { .. } => (
                Reason::NameTaken,
                "launch again in a while, or wait longer with --schedule-timeout; see whether the garbage collector of the cluster runs",
            ),
            E::Exists { .. } => (
                Reason::NameTaken,
                "take another name, or delete the other sandbox",
            ),
            E::NotFound { .. } | E::Conflict { .. } | E::Gone { .. } => (
                Reason::DeletedBySomeone,
                "see who else deletes or changes the session",
            ),
            E::Missing { field, .. } if field.starts_with("serviceAccount") => (
                Reason::Invalid,
                "create it, or name another one; deploy/ has podcradle-sandbox",
            ),
            E::Missing { .. } => (Reason::Invalid, "create it, or name another one"),
            E::Invalid { .. } => (Reason::Invalid, "change what the message names"),
        };
        Self::new(reason, error.to_string(), hint)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn every_reason_has_its_row_in_the_readme() {
        let source = include_str!("outcome.rs");
        let (_, rest) = source.split_once("pub enum Reason {").unwrap();
        let (body, _) = rest.split_once("\n}").unwrap();
        let variants = body.lines().map(str::trim);
        let variants = variants.filter(|line| !line.is_empty() && !line.starts_with("///"));
        let known: BTreeSet<_> = variants.map(|line| line.trim_end_matches(',')).collect();
        let readme = include_str!("../README.md");
        let (_, rest) = readme.split_once("## Why a launch fails").unwrap();
        let (section, _) = rest.split_once("\n## ").unwrap();
        let first = section
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
        let told: Vec<_> = first
            .flat_map(|cell| cell.split(", "))
            .map(|name| name.trim_matches('`'))
            .collect();
        assert!(known.len() > 20, "{known:?}");
        assert_eq!(told.iter().copied().collect::<BTreeSet<_>>(), known);
        assert_eq!(told.len(), known.len(), "a reason has two rows");
    }
}
