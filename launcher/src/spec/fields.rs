//! Every field of a spec that a flag sets, and how its text is read. A flag
//! `--memory-limit` has the variable `PODCRADLE_MEMORY_LIMIT`.

use serde_json::{Map, Value, json};

use super::{Origin, Problem, Setting, file, schema};

/// A field of the spec, as flag and variable.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Path in the serialized spec, keys joined by dots.
    pub path: &'static str,
    /// Long flag, without its dashes.
    pub flag: &'static str,
    /// What stands for the value in help.
    pub value: &'static str,
    /// Heading in help; empty for a flag that all verbs have.
    pub heading: &'static str,
    /// How its text is read.
    pub form: Form,
    /// Whether the environment may set it.
    pub variable: bool,
}

/// How the text of a flag or variable becomes a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// As it is.
    Text,
    /// A whole number.
    Number,
    /// `true` or `false`; a flag alone is `true`.
    Switch,
    /// Many texts, one list.
    List,
    /// Many names, united with those of other layers.
    Names,
    /// Many `KEY=VALUE`.
    Pairs,
    /// Many `claim=NAME,path=DIR[,writable]` or `secret=NAME,path=DIR`.
    Mounts,
    /// Many `KEY[=VALUE][:EFFECT]`, as in `kubectl taint`.
    Tolerations,
    /// `on-failure[:MAX]`.
    Restart,
    /// A NetworkPolicy without ranges of its own, or none at all.
    Policy,
    /// An object as JSON, or the YAML file that holds it.
    Object,
}

impl Form {
    /// Whether the flag may be given many times.
    pub fn repeats(self) -> bool {
        matches!(
            self,
            Self::List | Self::Names | Self::Pairs | Self::Mounts | Self::Tolerations
        )
    }

    /// Whether the flag may stand without a value.
    pub fn switches(self) -> bool {
        matches!(self, Self::Switch | Self::Policy)
    }
}

const fn field(
    path: &'static str,
    flag: &'static str,
    value: &'static str,
    heading: &'static str,
    form: Form,
) -> Field {
    Field {
        path,
        flag,
        value,
        heading,
        form,
        variable: true,
    }
}

/// A field of one sandbox alone: in an environment it would make two alike,
/// and a sandbox has some of these variables in its own.
const fn own(mut of: Field) -> Field {
    of.variable = false;
    of
}

const IDENTITY: &str = "Identity";
const IMAGE: &str = "Image";
const HOST: &str = "Host";
const WORKSPACE: &str = "Workspace and storage";
const PLACE: &str = "Place";
const RESOURCES: &str = "Resources";
const LIFE: &str = "Life";
const LAUNCH: &str = "Launch";
const NETWORK: &str = "Network";
const OVERLAY: &str = "Overlay";

/// All of them, in the order of help. Behind `--` stands one more, `host`.
#[rustfmt::skip]
pub const FIELDS: &[Field] = &[
    field("profile", "profile", "NAME", "", Form::Text),
    field("budgets.total", "timeout", "TIME", "", Form::Text),
    own(field("sandbox", "sandbox", "NAME", IDENTITY, Form::Text)),
    own(field("launchId", "launch-id", "ID", IDENTITY, Form::Text)),
    field("session", "session", "NAME", IDENTITY, Form::Text),
    field("labels", "label", "KEY=VALUE", IDENTITY, Form::Pairs),
    field("owner", "owner", "NAME", IDENTITY, Form::Text),
    field("serviceAccount", "service-account", "NAME", IDENTITY, Form::Text),
    field("image", "image", "REF", IMAGE, Form::Text),
    field("prepImage", "prep-image", "REF", IMAGE, Form::Text),
    field("imagePullPolicy", "image-pull-policy", "POLICY", IMAGE, Form::Text),
    field("imagePullSecrets", "image-pull-secret", "NAME", IMAGE, Form::List),
    field("arch", "arch", "ARCH", IMAGE, Form::Text),
    field("inject", "inject", "WAY", IMAGE, Form::Text),
    field("supervisorImage", "supervisor-image", "REF", IMAGE, Form::Text),
    field("bakedImage", "baked-image", "REF", IMAGE, Form::Text),
    field("initDir", "init-dir", "DIR", IMAGE, Form::Text),
    field("server", "server", "URL", HOST, Form::Text),
    own(field("hostId", "host-id", "ID", HOST, Form::Text)),
    own(field("hostName", "host-name", "NAME", HOST, Form::Text)),
    field("loginShell", "login-shell", "BOOL", HOST, Form::Switch),
    field("env", "env", "NAME", HOST, Form::Names),
    field("envPrefix", "env-prefix", "PREFIX", HOST, Form::Text),
    field("credentialsSecret", "credentials-secret", "NAME", HOST, Form::Text),
    field("tokenDelivery", "token-delivery", "WAY", HOST, Form::Text),
    field("restart", "restart", "on-failure[:MAX]", HOST, Form::Restart),
    field("runAs", "run-as", "ID", HOST, Form::Number),
    field("repo.url", "repo", "URL", WORKSPACE, Form::Text),
    field("repo.branch", "branch", "BRANCH", WORKSPACE, Form::Text),
    field("repo.dir", "repo-dir", "DIR", WORKSPACE, Form::Text),
    field("home", "home", "DIR", WORKSPACE, Form::Text),
    field("homeSizeLimit", "home-size-limit", "QUANTITY", WORKSPACE, Form::Text),
    field("mounts", "mount", "claim=NAME,path=DIR[,writable] | secret=NAME,path=DIR", WORKSPACE, Form::Mounts),
    field("nodeSelector", "node-selector", "KEY=VALUE", PLACE, Form::Pairs),
    field("tolerations", "toleration", "KEY[=VALUE][:EFFECT]", PLACE, Form::Tolerations),
    field("affinity", "affinity", "FILE|JSON", PLACE, Form::Object),
    field("runtimeClass", "runtime-class", "NAME", PLACE, Form::Text),
    field("priorityClass", "priority-class", "NAME", PLACE, Form::Text),
    field("hostUsers", "host-users", "BOOL", PLACE, Form::Switch),
    field("resources.cpuRequest", "cpu-request", "QUANTITY", RESOURCES, Form::Text),
    field("resources.memoryRequest", "memory-request", "QUANTITY", RESOURCES, Form::Text),
    field("resources.ephemeralStorageRequest", "ephemeral-storage-request", "QUANTITY", RESOURCES, Form::Text),
    field("resources.cpuLimit", "cpu-limit", "QUANTITY", RESOURCES, Form::Text),
    field("resources.memoryLimit", "memory-limit", "QUANTITY", RESOURCES, Form::Text),
    field("resources.ephemeralStorageLimit", "ephemeral-storage-limit", "QUANTITY", RESOURCES, Form::Text),
    field("ttl", "ttl", "TIME", LIFE, Form::Text),
    field("maxLifetime", "max-lifetime", "TIME", LIFE, Form::Text),
    field("grace", "grace", "SECONDS", LIFE, Form::Number),
    field("drain", "drain", "SECONDS", LIFE, Form::Number),
    field("terminationGracePeriod", "termination-grace-period", "SECONDS", LIFE, Form::Number),
    field("networkPolicy", "network-policy", "BOOL", NETWORK, Form::Policy),
    field("networkPolicy.egress", "egress", "CIDR", NETWORK, Form::List),
    field("wait", "wait", "FOR", LAUNCH, Form::Text),
    field("budgets.schedule", "schedule-timeout", "TIME", LAUNCH, Form::Text),
    field("budgets.pull", "pull-timeout", "TIME", LAUNCH, Form::Text),
    field("budgets.init", "init-timeout", "TIME", LAUNCH, Form::Text),
    field("budgets.start", "start-timeout", "TIME", LAUNCH, Form::Text),
    field("keepOnFailure", "keep-on-failure", "BOOL", LAUNCH, Form::Switch),
    field("overlay", "overlay", "FILE|JSON", OVERLAY, Form::Object),
    field("allowUnsafeOverlay", "allow-unsafe-overlay", "BOOL", OVERLAY, Form::Switch),
];

/// The field that a path belongs to.
pub fn of_path(path: &str) -> Option<&'static Field> {
    FIELDS.iter().find(|field| field.path == path)
}

impl Field {
    /// Its environment variable.
    pub fn variable(&self) -> Option<String> {
        self.variable.then(|| variable(self.flag))
    }

    /// What these texts set: those of a flag, or the words of a variable.
    ///
    /// # Errors
    /// The texts that have not the field's form, named as their origin names them.
    pub fn settings(
        &self,
        texts: &[String],
        origin: &Origin,
    ) -> Result<Vec<Setting>, Vec<Problem>> {
        let set = |value: Value| vec![Setting::new(self.path, value, origin)];
        let wrong = |text: &str, rule: &str| Problem::new(origin.field("", ""), text, rule);
        let one = |text: &str, rule: &str| vec![wrong(text, rule)];
        let last = texts.last().map_or("", String::as_str);
        // A repository is taken away with its branch and directory.
        let whole = if self.path == "repo.url" {
            "repo"
        } else {
            self.path
        };
        let nothing = || vec![Setting::new(whole, Value::Null, origin)];
        // Nothing takes away what lower layers set, and what stood before it.
        let end = texts.iter().rposition(String::is_empty);
        let (texts, over) = match end {
            Some(end) => (&texts[end + 1..], nothing()),
            None => (texts, Vec::new()),
        };
        if texts.is_empty() {
            return Ok(over);
        }
        Ok(match self.form {
            // The branch of another layer's repository is not this one's.
            Form::Text if self.path == "repo.url" => {
                vec![
                    Setting::new("repo", Value::Null, origin),
                    Setting::new(self.path, last, origin),
                ]
            }
            Form::Text => set(last.into()),
            Form::Number => set(last
                .parse::<i64>()
                .map_or_else(|_| last.into(), Value::from)),
            Form::Switch => set(switch(last).ok_or_else(|| one(last, SWITCH))?.into()),
            Form::Policy => {
                let wanted = switch(last).ok_or_else(|| one(last, SWITCH))?;
                set(wanted.then(Map::new).map_or(Value::Null, Value::Object))
            }
            Form::List => set(texts.into()),
            Form::Names => {
                let names = each(texts, |name| Ok(self.below(name, true, origin)))?;
                [over, names].concat()
            }
            Form::Pairs => {
                let pairs = each(texts, |text| {
                    let (key, value) = text
                        .split_once('=')
                        .ok_or_else(|| wrong(text, "must be KEY=VALUE"))?;
                    Ok(self.below(key, value, origin))
                })?;
                [over, pairs].concat()
            }
            Form::Mounts => {
                set(each(texts, |text| mount(text).map_err(|rule| wrong(text, &rule)))?.into())
            }
            Form::Tolerations => set(each(texts, |text| {
                toleration(text).ok_or_else(|| wrong(text, TOLERATION))
            })?
            .into()),
            Form::Restart => set(restart(last).ok_or_else(|| one(last, RESTART))?),
            Form::Object => set(object(last).map_err(|rule| {
                // The text itself may hold what is not to be told.
                one(if is_text(last) { "" } else { last }, &rule)
            })?),
        })
    }

    fn below(&self, key: &str, value: impl Into<Value>, origin: &Origin) -> Setting {
        Setting {
            path: vec![self.path.to_owned(), key.to_owned()],
            value: value.into(),
            origin: origin.clone(),
        }
    }
}

/// The variable of a flag.
pub fn variable(flag: &str) -> String {
    format!("PODCRADLE_{}", flag.replace('-', "_").to_uppercase())
}

const SWITCH: &str = "must be true or false";
const TOLERATION: &str = "must be KEY[=VALUE][:EFFECT], such as gpu=yes:NoSchedule or spot";
const RESTART: &str = "must be on-failure or on-failure:MAX";

fn each<T>(
    texts: &[String],
    read: impl Fn(&str) -> Result<T, Problem>,
) -> Result<Vec<T>, Vec<Problem>> {
    let (mut values, mut problems) = (Vec::new(), Vec::new());
    for text in texts {
        match read(text) {
            Ok(value) => values.push(value),
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() {
        Ok(values)
    } else {
        Err(problems)
    }
}

fn switch(text: &str) -> Option<bool> {
    text.parse().ok()
}

fn mount(text: &str) -> Result<Value, String> {
    let mut mount = Map::new();
    for part in text.split(',') {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let value = match key {
            "claim" | "secret" | "path" => Value::from(value),
            "writable" => switch(if value.is_empty() { "true" } else { value })
                .map(Value::from)
                .ok_or("writable must be true or false")?,
            _ => {
                let known = ["claim", "secret", "path", "writable"];
                return Err(format!(
                    "{key:?}: {}",
                    schema::unknown(key, known.into_iter())
                ));
            }
        };
        if mount.insert(key.to_owned(), value).is_some() {
            return Err(format!("{key} is given twice"));
        }
    }
    Ok(mount.into())
}

fn toleration(text: &str) -> Option<Value> {
    let (taint, effect) = match text.split_once(':') {
        Some((taint, effect)) => (taint, Some(effect)),
        None => (text, None),
    };
    let mut toleration = match taint.split_once('=') {
        Some((key, value)) => json!({ "key": key, "operator": "Equal", "value": value }),
        None => json!({ "key": taint, "operator": "Exists" }),
    };
    if let Some(effect) = effect.filter(|effect| !effect.is_empty()) {
        toleration["effect"] = effect.into();
    }
    (!taint.is_empty()).then_some(toleration)
}

fn restart(text: &str) -> Option<Value> {
    let limit = text.strip_prefix("on-failure")?;
    if limit.is_empty() {
        return Some(json!({}));
    }
    let max: u32 = limit.strip_prefix(':')?.parse().ok()?;
    Some(json!({ "max": max }))
}

/// Whether it is the object itself, and not the name of its file.
fn is_text(text: &str) -> bool {
    // YAML without braces has colons or lines, which a file's name has not.
    text.trim_start().starts_with('{') || text.contains(": ") || text.contains('\n')
}

fn object(text: &str) -> Result<Value, String> {
    let values = if is_text(text) {
        file::values(text, "text")
    } else {
        file::read_values(text.as_ref())
    };
    let mut values = values.map_err(|problems| {
        let rules: Vec<_> = problems.0.into_iter().map(|problem| problem.rule).collect();
        rules.join("; ")
    })?;
    match (values.pop(), values.is_empty()) {
        (Some(value), true) => Ok(value),
        _ => Err("must hold one object".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_has_a_row_for_every_field() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
        let readme = std::fs::read_to_string(path).unwrap();
        let begin = "<!-- fields: kept by a test, PODCRADLE_UPDATE_SNAPSHOTS=1 writes it -->\n";
        let (before, rest) = readme.split_once(begin).unwrap();
        let (kept, after) = rest.split_once("<!-- end of fields -->").unwrap();
        let table = table();
        if std::env::var_os("PODCRADLE_UPDATE_SNAPSHOTS").is_some() {
            std::fs::write(
                path,
                format!("{before}{begin}{table}<!-- end of fields -->{after}"),
            )
            .unwrap();
        } else {
            assert!(
                kept == table,
                "PODCRADLE_UPDATE_SNAPSHOTS=1 writes the table of {path}"
            );
        }
    }

    fn table() -> String {
        let rows = FIELDS.iter().map(|field| {
            let variable = field
                .variable()
                .map_or("-".to_owned(), |name| format!("`{name}`"));
            let flag = format!("--{}", field.flag);
            row(field.path, &flag, &variable)
        });
        let head = "| field | flag | variable | default | what |\n|---|---|---|---|---|\n";
        let last = row("host", "-- HOST ARG…", "-");
        rows.chain([last])
            .fold(head.to_owned(), |table, row| table + &row)
    }

    fn row(path: &str, flag: &str, variable: &str) -> String {
        let default = schema::default(path).map_or("-".to_owned(), |text| format!("`{text}`"));
        let what = schema::description(path).unwrap();
        assert!(!what.contains('|'), "{what}");
        format!("| `{path}` | `{flag}` | {variable} | {default} | {what} |\n")
    }

    #[test]
    fn a_mount_says_each_thing_once() {
        assert!(mount("claim=a,path=/a,writable").is_ok());
        let twice = mount("claim=a,path=/a,path=/b").unwrap_err();
        assert_eq!(twice, "path is given twice");
    }

    #[test]
    fn variables_are_named_as_flags() {
        assert_eq!(variable("memory-limit"), "PODCRADLE_MEMORY_LIMIT");
        assert_eq!(of_path("sandbox").unwrap().variable(), None);
    }
}
