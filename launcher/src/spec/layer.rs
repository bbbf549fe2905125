//! Layers: what each source (a flag, a variable, a file, a profile) sets, leaf
//! by leaf, so that every value of the result can say where it came from.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use super::{Problem, Profile, schema};

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", content = "name", rename_all = "kebab-case")]
pub enum Origin {
    /// A flag of the command line.
    Flag(String),
    /// A variable of the environment.
    Variable(String),
    /// A document of a spec file: `FILE`, or `FILE[INDEX]` of several.
    File(String),
    /// The configuration file.
    Config(String),
    /// The profile's default.
    Profile(Profile),
    /// Podcradle's default.
    Default,
    /// A default request, lowered to a limit that somebody set below it.
    Lowered,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) => f.write_str(name),
            Self::Variable(name) => write!(f, "variable {name}"),
            Self::File(name) => write!(f, "file {name}"),
            Self::Config(name) => write!(f, "config {name}"),
            Self::Profile(profile) => write!(f, "profile {profile}"),
            Self::Default => f.write_str("default"),
            Self::Lowered => f.write_str("default, lowered to the limit"),
        }
    }
}

impl Origin {
    /// The field as its author knows it: the flag, the variable, or the path in
    /// the file. `set` is the path that this origin has set.
    pub fn field(&self, set: &str, field: &str) -> String {
        match self {
            Self::Flag(name) | Self::Variable(name) if set == field => name.clone(),
            Self::Flag(name) | Self::Variable(name) | Self::File(name) => {
                format!("{name}: {field}")
            }
            // In the configuration file a sandbox's fields have their section.
            Self::Config(name) => format!("{name}: sandbox.{field}"),
            Self::Profile(_) | Self::Default | Self::Lowered => field.to_owned(),
        }
    }
}

/// One leaf that a layer sets. `null` takes away what lower layers have set.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// Keys from the spec down to the leaf.
    pub path: Vec<String>,
    /// Its value, in the serialized form.
    pub value: Value,
    /// Who set it.
    pub origin: Origin,
}

impl Setting {
    /// A setting of the leaf at a dotted path.
    pub fn new(path: &str, value: impl Into<Value>, origin: &Origin) -> Self {
        Self {
            path: path.split('.').map(str::to_owned).collect(),
            value: value.into(),
            origin: origin.clone(),
        }
    }

    /// The path as messages show it.
    pub fn field(&self) -> String {
        self.path.join(".")
    }
}

/// What one source sets, and what is wrong with it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Layer {
    /// The leaves, each over those before it.
    pub settings: Vec<Setting>,
    /// Problems found while reading.
    pub problems: Vec<Problem>,
}

impl Layer {
    /// The layer of a spec in its serialized form, all fields optional.
    pub fn of_value(value: &Value, origin: &Origin) -> Self {
        let mut layer = Self::default();
        for mut problem in schema::check(schema::spec(), schema::spec(), value, "") {
            problem.field = origin.field("", &problem.field);
            layer.problems.push(problem);
        }
        if let Value::Object(members) = value {
            for (key, value) in members {
                flatten(vec![key.clone()], value, origin, &mut layer.settings);
            }
        }
        // What is wrong is named once, and set by nobody.
        let wrong = |setting: &Setting| {
            let field = origin.field("", &setting.field());
            layer.problems.iter().any(|problem| {
                let rest = problem.field.strip_prefix(&field);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
            })
        };
        let (_, right): (Vec<_>, Vec<_>) = layer.settings.drain(..).partition(wrong);
        layer.settings = right;
        layer
    }
}

/// Sections whose members are set one by one; all else is replaced as a whole.
const SECTIONS: [&str; 6] = [
    "resources",
    "budgets",
    "repo",
    "networkPolicy",
    "labels",
    "nodeSelector",
];

fn flatten(path: Vec<String>, value: &Value, origin: &Origin, to: &mut Vec<Setting>) {
    let set = |path: Vec<String>, value: Value| Setting {
        path,
        value,
        origin: origin.clone(),
    };
    let top = path.len() == 1;
    match value {
        // Names are united: what one layer passes through, another does not take away.
        Value::Array(names) if top && path[0] == "env" => {
            for name in names.iter().filter_map(Value::as_str) {
                let path = vec!["env".to_owned(), name.to_owned()];
                to.push(set(path, Value::Bool(true)));
            }
        }
        Value::Object(members) if top && SECTIONS.contains(&path[0].as_str()) => {
            if path[0] == "repo" && members.contains_key("url") {
                // Another repository has nothing to do with this one's branch.
                to.push(set(path.clone(), Value::Null));
            }
            if path[0] == "networkPolicy" {
                to.push(set(path.clone(), Value::Object(serde_json::Map::new())));
            }
            for (key, value) in members {
                let mut path = path.clone();
                path.push(key.clone());
                to.push(set(path, value.clone()));
            }
        }
        _ => to.push(set(path, value.clone())),
    }
}
