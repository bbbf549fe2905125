//! From layers to a spec: each value is that of the highest layer that sets
//! it, and every problem of every layer is reported at once.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::environment::Environment;
use super::{
    Layer, Origin, Problem, Problems, Profile, SandboxSpec, Setting, passthrough, schema, time,
};
use crate::name;
use crate::quantity::Quantity;

/// The layers of one sandbox, put together.
#[derive(Debug, Clone)]
pub struct Merged {
    /// Its profile.
    pub profile: Profile,
    /// The serialized spec; `env` is still a mapping of names.
    tree: Value,
    /// Who set each leaf that is no default.
    origins: BTreeMap<String, Origin>,
    /// What is wrong with single leaves.
    pub problems: Vec<Problem>,
}

/// Puts layers together, the highest first. The variables of the profile that
/// they lead to stand right below the environment's, over files.
pub fn merge(flags: &Layer, environment: &Environment, files: &[&Layer]) -> Merged {
    let variables = environment.layer();
    let over_files = [flags, &variables];
    let (profile, _) = profile_of(over_files.into_iter().chain(files.iter().copied()));
    let of_profile = environment.profile_layer(profile);
    let mut merged = Merged::of_profile(profile);
    let high_to_low = [flags, &variables, &of_profile]
        .into_iter()
        .chain(files.iter().copied());
    for layer in high_to_low.collect::<Vec<_>>().into_iter().rev() {
        merged.lay(layer);
    }
    merged.trust_the_configured_image();
    merged.lower_requests();
    merged
}

/// The profile that the highest of these layers names, and who named it.
pub fn profile_of<'a>(high_to_low: impl IntoIterator<Item = &'a Layer>) -> (Profile, Origin) {
    high_to_low
        .into_iter()
        .flat_map(|layer| layer.settings.iter().rev())
        .filter(|setting| setting.path == ["profile"])
        .find_map(|setting| {
            let profile = match &setting.value {
                Value::Null => Profile::Default,
                named => serde_json::from_value(named.clone()).ok()?,
            };
            Some((profile, setting.origin.clone()))
        })
        .unwrap_or((Profile::Default, Origin::Default))
}

impl Merged {
    fn of_profile(profile: Profile) -> Self {
        let mut tree = tree_of(profile);
        tree["env"] = Value::Object(Map::new());
        let origins = differences(&tree, &DEFAULTS, &Origin::Profile(profile));
        Self {
            profile,
            tree,
            origins,
            problems: Vec::new(),
        }
    }

    fn lay(&mut self, layer: &Layer) {
        self.problems.extend(layer.problems.iter().cloned());
        for setting in &layer.settings {
            match leaf_problems(setting) {
                problems if problems.is_empty() => self.set(setting),
                problems => self.problems.extend(problems),
            }
        }
    }

    fn set(&mut self, setting: &Setting) {
        let (Some(key), sections) = (setting.path.last(), &setting.path[..setting.path.len() - 1])
        else {
            return;
        };
        let mut node = &mut self.tree;
        for (depth, section) in sections.iter().enumerate() {
            if !node[section].is_object() {
                // To take something away from nothing makes nothing.
                if setting.value.is_null() {
                    return;
                }
                node[section] = Value::Object(Map::new());
                let section = sections[..=depth].join(".");
                self.origins.insert(section, setting.origin.clone());
            }
            node = &mut node[section];
        }
        let Value::Object(members) = node else { return };
        let field = setting.field();
        let inner = format!("{field}.");
        match &setting.value {
            Value::Null => {
                let mut path = setting.path.iter();
                let default = path.try_fold(&*DEFAULTS, |node, key| node.get(key));
                let default = default.filter(|_| key != "env");
                match default {
                    Some(default) => members.insert(key.clone(), default.clone()),
                    None => members.remove(key),
                };
                self.origins.retain(|path, _| !path.starts_with(&inner));
                // Nobody asked for the default that is left.
                if default.is_some_and(|default| !default.is_null()) {
                    self.origins.remove(&field);
                    return;
                }
            }
            // The section alone: what it holds is set leaf by leaf.
            Value::Object(none) if none.is_empty() && key == "networkPolicy" => {
                members.entry(key).or_insert_with(|| setting.value.clone());
            }
            value => {
                members.insert(key.clone(), value.clone());
            }
        }
        self.origins.insert(field, setting.origin.clone());
    }

    /// Whoever asks for less than a default request wants no more than that. A
    /// request that was asked for is left to the checks.
    fn lower_requests(&mut self) {
        // What cannot be read is reported when this is finished.
        let Ok(SandboxSpec { resources: r, .. }) = self.spec() else {
            return;
        };
        let cpu = (Some(r.cpu_request), Some(r.cpu_limit));
        let memory = (Some(r.memory_request), Some(r.memory_limit));
        let storage = (r.ephemeral_storage_request, r.ephemeral_storage_limit);
        for (kind, pair) in [
            ("cpu", cpu),
            ("memory", memory),
            ("ephemeralStorage", storage),
        ] {
            let path = format!("resources.{kind}Request");
            let origin = self.origins.get(&path);
            let asked = origin.is_some_and(|origin| !matches!(origin, Origin::Profile(_)));
            if let (Some(request), Some(limit)) = pair
                && !asked
                && Quantity::compare(&request, &limit) == Some(Ordering::Greater)
            {
                self.set(&Setting::new(&path, limit, &Origin::Lowered));
            }
        }
    }

    /// Who set a leaf, or the section it is in.
    pub fn origin(&self, path: &str) -> &Origin {
        self.found(path)
            .map_or(&Origin::Default, |(_, origin)| origin)
    }

    /// The innermost part of a field's path that somebody set, and who.
    fn found<'a>(&self, field: &'a str) -> Option<(&'a str, &Origin)> {
        let mut path = field;
        loop {
            if let Some(origin) = self.origins.get(path) {
                return Some((path, origin));
            }
            path = &path[..path.rfind(['.', '['])?];
        }
    }

    /// A leaf's value in its serialized form; `env` is a mapping of names.
    pub fn value(&self, path: &str) -> Option<&Value> {
        path.split('.')
            .try_fold(&self.tree, |node, key| node.get(key))
    }

    /// The spec, checked as a whole.
    ///
    /// # Errors
    /// Every problem of every layer, and of the whole, each with the flag, the
    /// variable or the file and path that set it.
    pub fn finish(&self, label: &str, environment: &Environment) -> Result<SandboxSpec, Problems> {
        let mut problems = self.problems.clone();
        let wrong: Vec<_> = problems
            .iter()
            .map(|problem| problem.field.clone())
            .collect();
        let mut spec = match self.spec() {
            Ok(spec) => spec,
            Err(rule) => {
                problems.push(Problem::new("sandbox", "", rule));
                return Err(Problems(problems));
            }
        };
        if spec.sandbox.is_empty() {
            spec.sandbox = name::generate(label);
        }
        if spec.launch_id.is_empty() {
            spec.launch_id = name::random_hex(8);
        }
        self.pass_through(&mut spec, environment, &mut problems);
        self.contradictions(&mut spec, &mut problems);
        let found = spec
            .validate()
            .err()
            .map_or_else(Vec::new, |problems| problems.0);
        for mut problem in found {
            // Variables were looked at above, with what the environment holds.
            if problem.field == "env" {
                continue;
            }
            let field = problem.field.clone();
            problem = self.told(problem);
            // A leaf that could not be read is not missing as well.
            let behind = [format!(": {field}"), format!(": sandbox.{field}")];
            let unread = |wrong: &String| behind.iter().any(|end| wrong.ends_with(end));
            if problem.field != field || !wrong.iter().any(unread) {
                problems.push(problem);
            }
        }
        Problems::of(problems).map(|()| spec)
    }

    pub(super) fn spec(&self) -> Result<SandboxSpec, String> {
        let mut tree = self.tree.clone();
        let names = tree["env"]
            .as_object()
            .map(|env| env.keys().cloned().collect::<Vec<_>>());
        tree["env"] = names.unwrap_or_default().into();
        serde_json::from_value(tree).map_err(|error| error.to_string())
    }

    /// Whoever sets up the configuration knows what is in its image.
    fn trust_the_configured_image(&mut self) {
        let origin = self.origin("image").clone();
        let configured = matches!(origin, Origin::Config(_) | Origin::Profile(_));
        let none = self.tree["image"] == "" || self.origins.contains_key("bakedImage");
        if configured && !none {
            self.tree["bakedImage"] = self.tree["image"].clone();
            self.origins.insert("bakedImage".to_owned(), origin);
        }
    }

    fn pass_through(
        &self,
        spec: &mut SandboxSpec,
        environment: &Environment,
        problems: &mut Vec<Problem>,
    ) {
        let prefix = spec.env_prefix.clone();
        for (name, value) in &mut spec.env {
            let read = environment.value(name);
            let given = read.unwrap_or_default();
            let checked = match read {
                Ok(given) => passthrough(name, given, &prefix),
                Err(rule) => Err(Problem::new("env", name, rule)),
            };
            match checked {
                Ok(()) => value.push_str(given.unwrap_or_default()),
                Err(mut problem) => {
                    let origin = self.origin(&format!("env.{name}"));
                    problem.field = origin.field("env", "env");
                    problems.push(problem);
                }
            }
        }
    }

    /// What cannot be wanted together, seen by who wants it.
    fn contradictions(&self, spec: &mut SandboxSpec, problems: &mut Vec<Problem>) {
        if spec.session.is_some() {
            self.in_session(spec, problems);
        } else {
            self.owner_or_ttl(spec, problems);
        }
        // Defaults may be above a total that was asked for: it ends them.
        let b = &spec.budgets;
        for (field, budget) in [
            ("budgets.schedule", b.schedule),
            ("budgets.pull", b.pull),
            ("budgets.init", b.init),
            ("budgets.start", b.start),
        ] {
            if let Some(origin) = self.origins.get(field)
                && budget > b.total
            {
                let total = time::format(b.total);
                let rule =
                    format!("must not be above the total, {total}, of --timeout or budgets.total");
                problems.push(Problem::new(
                    origin.field(field, field),
                    time::format(budget),
                    rule,
                ));
            }
        }
    }

    /// A problem as whoever set the field knows it: of a flag that sets one key
    /// of many, with the key.
    pub fn told(&self, mut problem: Problem) -> Problem {
        let pairs = ["labels.", "nodeSelector."];
        let field = std::mem::take(&mut problem.field);
        let key = pairs.iter().find_map(|pair| field.strip_prefix(pair));
        let apart = matches!(self.origin(&field), Origin::Flag(_) | Origin::Variable(_));
        if let Some(key) = key.filter(|_| apart) {
            problem.value = format!("{key}={}", problem.value);
        }
        problem.field = self.named(&field);
        problem
    }

    /// A field as whoever set it knows it, the whole spec by its document.
    pub(super) fn named(&self, field: &str) -> String {
        if field == "spec" {
            let files = self.origins.values();
            let mut files = files.filter(|origin| matches!(origin, Origin::File(_)));
            return files
                .next()
                .map_or_else(|| field.to_owned(), |file| file.field("", field));
        }
        self.found(field).map_or_else(
            || field.to_owned(),
            |(path, origin)| origin.field(path, field),
        )
    }
}

fn tree_of(profile: Profile) -> Value {
    serde_json::to_value(SandboxSpec::of_profile(profile)).unwrap_or_default()
}

/// Every default in the serialized form.
pub(super) fn defaults() -> &'static Value {
    &DEFAULTS
}

static DEFAULTS: LazyLock<Value> = LazyLock::new(|| tree_of(Profile::Default));

fn differences(tree: &Value, from: &Value, origin: &Origin) -> BTreeMap<String, Origin> {
    let members = tree.as_object().into_iter().flatten();
    members
        .filter(|(key, value)| *key != "env" && from.get(key.as_str()) != Some(*value))
        .map(|(key, _)| (key.clone(), origin.clone()))
        .collect()
}

/// What is wrong with a leaf by itself: its type, or a form that only reading
/// it shows, tried on a spec that is right everywhere else.
fn leaf_problems(setting: &Setting) -> Vec<Problem> {
    let field = setting.field();
    if setting.value.is_null() || setting.path.first().is_some_and(|key| key == "env") {
        return Vec::new();
    }
    let root = schema::spec();
    let mut problems = match schema::at(root, &setting.path) {
        Some(node) => schema::check(root, node, &setting.value, &field),
        None => Vec::new(),
    };
    if problems.is_empty() {
        let mut tree = DEFAULTS.clone();
        let mut node = &mut tree;
        for key in &setting.path {
            if !node.is_object() {
                *node = Value::Object(Map::new());
            }
            node = &mut node[key];
        }
        *node = setting.value.clone();
        if let Err(error) = serde_json::from_value::<SandboxSpec>(tree) {
            let value = schema::told(&field, &setting.value);
            problems.push(Problem::new(&field, value, error));
        }
    }
    for problem in &mut problems {
        problem.field = setting.origin.field(&field, &problem.field);
    }
    problems
}

#[cfg(test)]
mod tests;
