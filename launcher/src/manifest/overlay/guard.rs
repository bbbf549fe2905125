//! What an overlay may not do to the Pod: never (the launcher would lose what
//! it made), or only with `allowUnsafeOverlay` (the sandbox would hold less).

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{problem, restricted};
use crate::manifest::inject::{INIT_VOLUME, init_path};
use crate::manifest::volumes::TOKEN_VOLUME;
use crate::manifest::{COPY_CONTAINER, TOKEN_GATE, our_labels, secret_name};
use crate::spec::{Problem, SandboxSpec, TOKEN_FILE};

/// Why no flag helps.
const NEVER: &str = "podcradle would lose the Pod otherwise";
const OUR_PREFIX: &str = "podcradle.dev/";

/// What an overlay does that it should not.
#[derive(Default)]
pub(super) struct Found {
    /// Refused in any case.
    pub(super) never: Vec<Problem>,
    /// Refused unless `allowUnsafeOverlay` is set.
    pub(super) weaker: Vec<Problem>,
}

/// Compares the Pod without the overlay to the Pod with it.
pub(super) fn look(spec: &SandboxSpec, generation: u32, base: &Value, pod: &Value) -> Found {
    let mut found = Found::default();
    found.identity(spec, generation, base, pod);
    found.token(spec, generation, base, pod);
    found.pod(spec, base, pod);
    for list in ["initContainers", "containers"] {
        let (before, now) = (&base["spec"][list], &pod["spec"][list]);
        let at = |container: &Value| format!("spec.{list}[{}]", text(&container["name"]));
        for container in items(before) {
            match named(now, text(&container["name"])) {
                Some(now) => found.container(&at(container), container, now),
                None => found.never(&at(container), &Value::Null, "must stay"),
            }
        }
        for container in items(now) {
            let was = named(before, text(&container["name"]));
            found.mounts(spec, &at(container), was, container);
        }
    }
    for violation in restricted::violations(pod).0 {
        found.weaker(&violation.field, &violation.value, violation.rule);
    }
    found.contexts(base, pod);
    found
}

impl Found {
    fn never(&mut self, field: &str, value: &Value, rule: &str) {
        let rule = format!("{rule}; {NEVER}");
        self.never.push(problem(field, value, rule));
    }

    fn weaker(&mut self, field: &str, value: &Value, rule: &str) {
        let rule = format!("{rule}; only allowUnsafeOverlay permits to weaken the sandbox");
        let problem = problem(field, value, rule);
        if !self.weaker.iter().any(|known| known.field == problem.field) {
            self.weaker.push(problem);
        }
    }

    /// Name, owner, labels and gate: what the launcher knows its Pod by.
    fn identity(&mut self, spec: &SandboxSpec, generation: u32, base: &Value, pod: &Value) {
        let (before, now) = (&base["metadata"], &pod["metadata"]);
        for key in all_keys(before, now) {
            match key.as_str() {
                "labels" | "annotations" => {}
                "finalizers" => self.weaker(
                    "metadata.finalizers",
                    &now["finalizers"],
                    "must be absent, or the Pod outlives its session",
                ),
                key if before[key] != now[key] => {
                    let rule = format!("must be {}", before[key]);
                    self.never(&format!("metadata.{key}"), &now[key], &rule);
                }
                _ => {}
            }
        }
        let ours = our_labels(spec, generation);
        for (key, value) in &ours {
            let now = &now["labels"][*key];
            if now != value {
                let rule = format!("must be {value:?}");
                self.never(&format!("metadata.labels.{key}"), now, &rule);
            }
        }
        for (key, value) in now["labels"].as_object().into_iter().flatten() {
            if key.starts_with(OUR_PREFIX) && ours.iter().all(|(our, _)| our != key) {
                let rule = "must not be under podcradle.dev/";
                self.never(&format!("metadata.labels.{key}"), value, rule);
            }
        }
        let (before, now) = (&before["annotations"], &now["annotations"]);
        for key in all_keys(before, now) {
            if key.starts_with(OUR_PREFIX) && before[key] != now[key] {
                let rule = "must be as podcradle sets it";
                self.never(&format!("metadata.annotations.{key}"), &now[key], rule);
            }
        }
        if named(&pod["spec"]["schedulingGates"], TOKEN_GATE).is_none() {
            let rule = format!("must have {TOKEN_GATE}");
            self.never(
                "spec.schedulingGates",
                &pod["spec"]["schedulingGates"],
                &rule,
            );
        }
        // The API server refuses both, but only once the anchor exists.
        for field in ["nodeName", "ephemeralContainers"] {
            let value = &pod["spec"][field];
            if !value.is_null() {
                self.never(&format!("spec.{field}"), value, "must be absent");
            }
        }
    }

    /// The token's Secret is named where it was, and nowhere else; nor does the
    /// Pod's own text hold what the host takes for its token.
    fn token(&mut self, spec: &SandboxSpec, generation: u32, base: &Value, pod: &Value) {
        let secret = secret_name(&spec.sandbox, generation);
        let (before, now) = (places(base, &secret), places(pod, &secret));
        for place in before.iter().filter(|place| !now.contains(place)) {
            self.never(place, &Value::Null, &format!("must be {secret:?}"));
        }
        for place in now.iter().filter(|place| !before.contains(place)) {
            let rule = "must not name the token's Secret";
            self.weaker(place, &Value::String(secret.clone()), rule);
        }
        self.unchanged("spec.volumes", base, pod, TOKEN_VOLUME);
        let variable = spec.env_name("HOST_TOKEN");
        for list in ["initContainers", "containers"] {
            for container in items(&pod["spec"][list]) {
                let name = text(&container["name"]);
                let was = named(&base["spec"][list], name);
                let was = was.and_then(|was| named(&was["env"], &variable));
                let env = named(&container["env"], &variable);
                if env != was {
                    self.weaker(
                        &format!("spec.{list}[{name}].env[{variable}]"),
                        env.unwrap_or(&Value::Null),
                        "must be as podcradle sets it",
                    );
                }
            }
        }
    }

    /// A volume of ours that is as it was.
    fn unchanged(&mut self, at: &str, base: &Value, pod: &Value, name: &str) {
        let volume = |pod: &Value| named(&pod["spec"]["volumes"], name).cloned();
        let (before, now) = (volume(base), volume(pod));
        if before != now {
            let now = now.unwrap_or_default();
            self.weaker(
                &format!("{at}[{name}]"),
                &now,
                "must be as podcradle makes it",
            );
        }
    }

    /// What the whole Pod has in common.
    fn pod(&mut self, spec: &SandboxSpec, base: &Value, pod: &Value) {
        let (before, now) = (&base["spec"], &pod["spec"]);
        let account = &before["serviceAccountName"];
        for (field, right) in [
            (
                "automountServiceAccountToken",
                now["automountServiceAccountToken"] == false,
            ),
            (
                "hostUsers",
                before["hostUsers"] != false || now["hostUsers"] == false,
            ),
            ("serviceAccountName", now["serviceAccountName"] == *account),
            (
                "serviceAccount",
                now["serviceAccount"].is_null() || now["serviceAccount"] == *account,
            ),
            (
                "shareProcessNamespace",
                now["shareProcessNamespace"] != true,
            ),
            // Another system has none of what `restricted` asks for.
            ("os", now["os"] == before["os"]),
            (
                "runtimeClassName",
                before["runtimeClassName"].is_null()
                    || now["runtimeClassName"] == before["runtimeClassName"],
            ),
        ] {
            if !right {
                let rule = match &before[field] {
                    Value::Null => "must be absent".to_owned(),
                    value => format!("must be {value}"),
                };
                self.weaker(&format!("spec.{field}"), &now[field], &rule);
            }
        }
        let number = |spec: &Value, field: &str| spec[field].as_i64();
        let field = "activeDeadlineSeconds";
        let most = number(before, field).unwrap_or(i64::MAX);
        if number(now, field).is_none_or(|seconds| seconds > most) {
            let rule = format!("must not be above maxLifetime, {most}");
            self.weaker(&format!("spec.{field}"), &now[field], &rule);
        }
        let field = "terminationGracePeriodSeconds";
        let least = i64::from(spec.grace) + i64::from(spec.drain) + 2;
        if number(now, field).is_none_or(|seconds| seconds < least) {
            let rule = format!("must not be below grace + drain + 2, {least}");
            self.weaker(&format!("spec.{field}"), &now[field], &rule);
        }
        for volume in items(&now["volumes"]) {
            let sources = items(&volume["projected"]["sources"]);
            for source in sources.filter(|source| !source["serviceAccountToken"].is_null()) {
                let at = format!("spec.volumes[{}].projected", text(&volume["name"]));
                let rule = "must not hold a token for the API server";
                self.weaker(&at, source, rule);
            }
        }
        self.unchanged("spec.volumes", base, pod, INIT_VOLUME);
    }

    /// Where `restricted` allows more than the plain Pod has.
    fn contexts(&mut self, base: &Value, pod: &Value) {
        let (before, now) = (
            &base["spec"]["securityContext"],
            &pod["spec"]["securityContext"],
        );
        for (key, profile) in pod["metadata"]["annotations"]
            .as_object()
            .into_iter()
            .flatten()
        {
            if key.starts_with(restricted::APPARMOR) && profile != "runtime/default" {
                let rule = "must be runtime/default";
                self.weaker(&format!("metadata.annotations.{key}"), profile, rule);
            }
        }
        let at = "spec.securityContext";
        // Without them the image decides, and that is often root's group.
        for field in ["runAsUser", "runAsGroup", "fsGroup"] {
            if now[field].is_null() && !before[field].is_null() {
                let rule = format!("must be {}, or another one", before[field]);
                self.weaker(&format!("{at}.{field}"), &Value::Null, &rule);
            }
        }
        let groups = &now["supplementalGroups"];
        let known = |group| items(&before["supplementalGroups"]).any(|known| known == group);
        if !items(groups).all(known) {
            self.weaker(
                &format!("{at}.supplementalGroups"),
                groups,
                "must be absent",
            );
        }
        self.context(at, now);
        for list in ["initContainers", "containers"] {
            for container in items(&pod["spec"][list]) {
                let at = format!("spec.{list}[{}]", text(&container["name"]));
                let now = &container["securityContext"];
                self.context(&format!("{at}.securityContext"), now);
                let added = &now["capabilities"]["add"];
                // Others than this one are no longer `restricted` and named there.
                if items(added).any(|name| name == "NET_BIND_SERVICE") {
                    let at = format!("{at}.securityContext.capabilities.add");
                    self.weaker(&at, added, "must be absent");
                }
            }
        }
    }

    /// What Pods and containers say with the same words.
    fn context(&mut self, at: &str, now: &Value) {
        for field in ["runAsGroup", "fsGroup"] {
            if now[field] == 0 {
                let rule = "must not be root's group";
                self.weaker(&format!("{at}.{field}"), &now[field], rule);
            }
        }
        // One of the node's own files, which may allow anything, or none at all.
        for field in ["seccompProfile", "appArmorProfile"] {
            let profile = &now[field];
            let kind = &profile["type"];
            if kind == "Localhost" || (kind.is_null() && !profile.is_null()) {
                let rule = "must be RuntimeDefault";
                self.weaker(&format!("{at}.{field}"), profile, rule);
            }
        }
        // The runtime's label is of one sandbox alone, and allows a container's
        // least.
        let options = &now["seLinuxOptions"];
        if items_of(options).any(|option| option != "") {
            let rule = "must be absent";
            self.weaker(&format!("{at}.seLinuxOptions"), options, rule);
        }
    }

    /// A container of ours: what it starts with.
    fn container(&mut self, at: &str, before: &Value, now: &Value) {
        if before["command"] != now["command"] {
            let rule = "must be podcradle-init with its flags";
            self.weaker(&format!("{at}.command"), &now["command"], rule);
        }
        if before["name"] == COPY_CONTAINER && before["image"] != now["image"] {
            let rule = "must be supervisorImage";
            self.weaker(&format!("{at}.image"), &now["image"], rule);
        }
        let ours = |mount: &&Value| [TOKEN_VOLUME, INIT_VOLUME].contains(&text(&mount["name"]));
        for mount in items(&before["volumeMounts"]).filter(ours) {
            if !items(&now["volumeMounts"]).any(|other| other == mount) {
                let at = format!("{at}.volumeMounts[{}]", text(&mount["mountPath"]));
                self.weaker(&at, &Value::Null, &format!("must be {mount}"));
            }
        }
    }

    /// What is mounted beyond what we mount: the token is for the host alone,
    /// nobody writes over podcradle-init, and nothing lies over the two.
    fn mounts(&mut self, spec: &SandboxSpec, at: &str, before: Option<&Value>, now: &Value) {
        for mount in items(&now["volumeMounts"]) {
            if before.is_some_and(|b| items(&b["volumeMounts"]).any(|known| known == mount)) {
                continue;
            }
            // One that is no path is refused for that.
            let Some(path) = mount["mountPath"].as_str() else {
                continue;
            };
            let at = format!("{at}.volumeMounts[{path}]");
            if mount["name"] == TOKEN_VOLUME {
                self.weaker(&at, mount, "must not mount the token");
            }
            if mount["name"] == INIT_VOLUME && mount["readOnly"] != true {
                self.weaker(&at, mount, "must be read-only");
            }
            if before.is_some() && covers(path, &init_path(spec)) {
                self.weaker(&at, mount, "must not lie over podcradle-init");
            }
            if before.is_some() && covers(path, TOKEN_FILE) {
                self.weaker(&at, mount, "must not lie over the token");
            }
        }
    }
}

/// Whether a mount at `path` decides what lies at `file`.
fn covers(path: &str, file: &str) -> bool {
    let path: Vec<_> = path
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .collect();
    let file: Vec<_> = file.split('/').filter(|part| !part.is_empty()).collect();
    // A path that climbs may lead anywhere.
    path.contains(&"..") || file.starts_with(&path)
}

/// Where in a Pod a text stands by itself; list elements by their names.
fn places(pod: &Value, wanted: &str) -> Vec<String> {
    fn walk(value: &Value, at: &str, wanted: &str, found: &mut Vec<String>) {
        match value {
            Value::String(text) if text == wanted => found.push(at.to_owned()),
            Value::Object(map) => {
                for (key, value) in map {
                    let dot = if at.is_empty() { "" } else { "." };
                    walk(value, &format!("{at}{dot}{key}"), wanted, found);
                }
            }
            Value::Array(list) => {
                for (index, value) in list.iter().enumerate() {
                    let name = value["name"].as_str().map(str::to_owned);
                    let name = name.unwrap_or_else(|| index.to_string());
                    walk(value, &format!("{at}[{name}]"), wanted, found);
                }
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    walk(pod, "", wanted, &mut found);
    found
}

fn named<'a>(list: &'a Value, name: &str) -> Option<&'a Value> {
    items(list).find(|item| item["name"] == name)
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn items_of(map: &Value) -> impl Iterator<Item = &Value> {
    map.as_object().into_iter().flat_map(Map::values)
}

fn all_keys<'a>(a: &'a Value, b: &'a Value) -> BTreeSet<&'a String> {
    let maps = [a, b].into_iter().filter_map(Value::as_object);
    maps.flat_map(Map::keys).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
