//! The API server's audit log: what was asked, by which credential. The id of
//! a credential tells two tests apart that run as the same `ServiceAccount`.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::Path;

use serde::Deserialize;

use super::{Result, Trying};

/// One request, as the log has it (its last stage).
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    #[serde(rename = "auditID")]
    id: String,
    /// `create`, `watch`, …
    pub verb: String,
    /// The path and query.
    #[serde(rename = "requestURI")]
    pub uri: String,
    /// When the API server received it (RFC 3339, microseconds).
    pub request_received_timestamp: String,
    /// When this stage was reached.
    pub stage_timestamp: String,
    user: User,
    object_ref: Option<Object>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct User {
    #[serde(default)]
    extra: BTreeMap<String, Vec<String>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Object {
    #[serde(default)]
    resource: String,
    #[serde(default)]
    subresource: String,
}

impl Request {
    /// `create pods`, `watch pods`, `get pods/log`: what a person would count.
    pub fn short(&self) -> String {
        match &self.object_ref {
            Some(object) if object.subresource.is_empty() => {
                format!("{} {}", self.verb, object.resource)
            }
            Some(object) => format!("{} {}/{}", self.verb, object.resource, object.subresource),
            None => format!("{} {}", self.verb, self.uri),
        }
    }
}

/// Every request a credential made, in order, each once.
pub fn requests(log: &Path, credential: &str) -> Result<Vec<Request>> {
    let reading = || format!("read the audit log {}", log.display());
    let file = std::fs::File::open(log).trying(reading())?;
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut all: Vec<Request> = Vec::new();
    for line in std::io::BufReader::new(file).lines() {
        let line = line.trying(reading())?;
        // Looking for the credential first spares parsing most of the log; a
        // line that is still being written does not parse, and is not ours.
        if !line.contains(credential) {
            continue;
        }
        let Ok(request) = serde_json::from_str::<Request>(&line) else {
            continue;
        };
        let ours = |ids: &Vec<String>| ids.iter().any(|id| id.ends_with(credential));
        if !request.user.extra.values().any(ours) {
            continue;
        }
        if let Some(&place) = seen.get(&request.id) {
            all[place] = request;
        } else {
            seen.insert(request.id.clone(), all.len());
            all.push(request);
        }
    }
    Ok(all)
}

/// When the API server first wrote that the host of this Pod runs: the end of
/// the kubelet's request, RFC 3339 with microseconds.
pub fn host_running(log: &Path, pod: &str) -> Result<Option<String>> {
    let reading = || format!("read the audit log {}", log.display());
    let file = std::fs::File::open(log).trying(reading())?;
    let name = format!("/pods/{pod}/status");
    for line in std::io::BufReader::new(file).lines() {
        let line = line.trying(reading())?;
        if !line.contains(&name) {
            continue;
        }
        let Ok(event) = serde_json::from_str::<serde_json::Value>(&line) else {
            continue;
        };
        let statuses = &event["responseObject"]["status"]["containerStatuses"];
        let runs = statuses.as_array().is_some_and(|statuses| {
            statuses
                .iter()
                .any(|one| one["name"] == "host" && one["state"]["running"].is_object())
        });
        if runs {
            return Ok(event["stageTimestamp"].as_str().map(str::to_owned));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(id: &str, credential: &str, verb: &str, stage: &str) -> String {
        format!(
            r#"{{"auditID":"{id}","stage":"{stage}","verb":"{verb}","requestURI":"/x","requestReceivedTimestamp":"a","stageTimestamp":"b","user":{{"extra":{{"authentication.kubernetes.io/credential-id":["JTI={credential}"]}}}},"objectRef":{{"resource":"pods","subresource":"log"}}}}"#
        )
    }

    #[test]
    fn stages_of_one_request_count_once_and_others_do_not() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let lines = [
            line("1", "me", "watch", "ResponseStarted"),
            line("2", "you", "get", "ResponseComplete"),
            line("3", "me", "get", "ResponseComplete"),
            line("1", "me", "watch", "ResponseComplete"),
            r#"{"auditID":"4","user":{"extra":{"x":["JTI=me"#.to_owned(),
        ];
        std::fs::write(log.path(), lines.join("\n")).unwrap();
        let all = requests(log.path(), "me").unwrap();
        let short: Vec<_> = all.iter().map(Request::short).collect();
        assert_eq!(short, ["watch pods/log", "get pods/log"]);
    }
}
