//! One row: a launch that fails, seen from the middle, so that it can be kept.

use podcradle_tests::e2e::{Actor, Arch, Cluster, Ended, Middle, actor, repository};
use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Stop};
use serde_json::{Value, json};

use crate::failures::gone;

/// A row under way.
pub struct Row {
    pub actor: Actor,
    pub name: String,
    pub middle: Middle,
    fixture: &'static str,
}

/// What a failed launch must say.
pub struct Expected<'a> {
    /// The exit code.
    pub code: i32,
    /// `reason`, stable.
    pub reason: &'a str,
    /// In its message.
    pub message: &'a [&'a str],
    /// In its hint.
    pub hint: &'a str,
}

impl Row {
    pub fn new(arch: Arch, row: &'static str) -> Result<Self, Stop> {
        let actor = Actor::new(arch)?;
        let name = actor.reserve(row)?;
        let middle = Middle::before(&actor)?;
        Ok(Self {
            actor,
            name,
            middle,
            fixture: row,
        })
    }

    /// A launch of the sandbox image.
    pub fn launch(&self) -> actor::Launch<'_> {
        self.of(&Cluster::image(self.actor.arch))
    }

    /// A launch of this image.
    pub fn of(&self, image: &str) -> actor::Launch<'_> {
        actor::Launch::of(&self.actor, image).option(&["--sandbox", &self.name])
    }

    /// The failure of a launch whose Pod came to something, as expected; what
    /// its watch showed is kept.
    pub fn fails(&self, ended: Ended, expected: &Expected) -> Result<Value, Stop> {
        let pods = self.middle.pods();
        ensure!(!pods.is_empty(), "the launch saw nothing of its Pod");
        self.keep(self.fixture, "pods", &json!(pods))?;
        let error = says(ended, expected)?;
        gone(&self.actor, &self.name)?;
        Ok(error)
    }

    /// The failure of a launch that the API server refused.
    pub fn is_refused(&self, ended: Ended, expected: &Expected) -> Result<Value, Stop> {
        let refusals = self.middle.refusals();
        let Some(refusal) = refusals.first() else {
            return Err("the API server refused nothing".into());
        };
        self.keep(self.fixture, "status", refusal)?;
        says(ended, expected)
    }

    /// Keeps what the watch showed of a Pod that the test has looked at itself.
    pub fn keep_pods(&self) -> Outcome {
        self.keep(self.fixture, "pods", &json!(self.middle.pods()))
    }

    /// What a launch sees that comes later: a container that the kubelet holds
    /// back before it starts it again, which may last for a moment only.
    pub fn held_back(&self, statuses: &str, fixture: &str) -> Result<Value, Stop> {
        let held = format!(
            "--for=jsonpath={{.status.{statuses}[0].state.waiting.reason}}=CrashLoopBackOff"
        );
        let pod = format!("pod/{}", self.name);
        let wait = ["wait", &pod, &held, "--output=json", "--timeout=300s"];
        let pod = self.actor.cluster.admin.try_run(&wait)?;
        let pod = pod.with_code(0)?.json()?;
        self.keep_pod(fixture, &pod)?;
        Ok(pod)
    }

    /// Keeps a Pod as it is now.
    fn keep_pod(&self, fixture: &str, pod: &Value) -> Outcome {
        let event = json!([{ "type": "MODIFIED", "object": pod }]);
        self.keep(fixture, "pods", &event)
    }

    /// Keeps a refusal that the test has looked at itself.
    pub fn keep_status(&self, refusal: &Value) -> Outcome {
        self.keep(self.fixture, "status", refusal)
    }

    fn keep(&self, fixture: &str, what: &str, seen: &Value) -> Outcome {
        if std::env::var_os("PODCRADLE_RECORD_FIXTURES").is_none() {
            return Ok(());
        }
        let version = self.actor.cluster.admin.run(&["version", "-o=json"])?;
        let version: Value = serde_json::from_str(&version)?;
        let mut seen = seen.clone();
        let folder = self.actor.cluster.admin.folder().display().to_string();
        let words = [
            (&*self.name, "podcradle-row"),
            (&*folder, "/var/lib/testbed"),
        ];
        strip(&mut seen, &words);
        if let Value::Array(events) = &mut seen {
            // What is left of some differs in nothing any more.
            events.dedup();
        }
        let from = version["serverVersion"]["gitVersion"].as_str();
        let from = format!("Kubernetes {}", from.unwrap_or("of unknown version"));
        let text = match &seen {
            Value::Array(events) => {
                let lines: Vec<_> = events.iter().map(Value::to_string).collect();
                format!("[\n{}\n]", lines.join(",\n"))
            }
            other => format!("{other:#}"),
        };
        let text = format!("{{\"recordedFrom\": {from:?}, {what:?}: {text}}}\n");
        let folder = repository().join("launcher/fixtures");
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(format!("{fixture}.json")), text)?;
        Ok(())
    }
}

/// What a failed launch said, compared.
pub fn says(ended: Ended, expected: &Expected) -> Result<Value, Stop> {
    let took = ended.took;
    let error = ended.with_code(expected.code)?.json()?["error"].clone();
    ensure!(
        error["reason"] == expected.reason,
        "reason after {took:?}: {error:#}"
    );
    let text = |field: &str| error[field].as_str().unwrap_or_default().to_owned();
    for part in expected.message {
        ensure!(
            text("message").contains(part),
            "no {part:?} in the message: {error:#}"
        );
    }
    ensure!(
        text("hint").contains(expected.hint),
        "no {:?} in the hint: {error:#}",
        expected.hint
    );
    ensure!(error["cleanedUp"] == true, "not cleaned up: {error:#}");
    Ok(error)
}

/// Takes out what differs from run to run and decides nothing.
fn strip(value: &mut Value, words: &[(&str, &str)]) {
    const VARIES: [&str; 18] = [
        "managedFields",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "generation",
        "observedGeneration",
        "podIP",
        "podIPs",
        "hostIP",
        "hostIPs",
        "containerID",
        "lastTransitionTime",
        "startTime",
        "startedAt",
        "finishedAt",
        "labels",
        "user",
        "allocatedResources",
    ];
    match value {
        Value::Object(map) => {
            for field in VARIES {
                map.remove(field);
            }
            // Of the spec a diagnosis reads what a kubelet does not write.
            if let Some(Value::Object(spec)) = map.get_mut("spec") {
                let read = [
                    "containers",
                    "initContainers",
                    "nodeName",
                    "schedulingGates",
                    "restartPolicy",
                ];
                spec.retain(|field, _| read.contains(&field.as_str()));
            }
            for field in [
                "env",
                "envFrom",
                "volumeMounts",
                "securityContext",
                "command",
                "args",
            ] {
                map.remove(field);
            }
            map.values_mut().for_each(|value| strip(value, words));
        }
        Value::Array(items) => items.iter_mut().for_each(|value| strip(value, words)),
        Value::String(text) => {
            for (word, instead) in words {
                *text = text.replace(word, instead);
            }
        }
        _ => {}
    }
}
