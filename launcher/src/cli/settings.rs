//! What every verb needs to know, from flags, the environment, the
//! configuration file and the profile.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use podcradle_launcher::spec::environment::Environment;
use podcradle_launcher::spec::fields::variable;
use podcradle_launcher::spec::resolve::profile_of;
use podcradle_launcher::spec::{
    Layer, Origin, Problem, Problems, Profile, Setting, file, schema, time,
};
use schemars::JsonSchema;
use serde_json::{Map, Value};

use super::args::{GlobalArgs, InCluster, Output};
use super::exit::Failed;

/// The keys of the configuration file.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
struct ConfigFile {
    namespace: Option<String>,
    context: Option<String>,
    kubeconfig: Option<String>,
    in_cluster: Option<String>,
    output: Option<String>,
    timeout: Option<String>,
    profile: Option<String>,
    sandbox: Option<Map<String, Value>>,
}

/// As flag and variable have it; the file has `inCluster`.
const IN_CLUSTER: &str = "in-cluster";

/// The keys that are not about one sandbox.
const KEYS: [&str; 7] = [
    "namespace",
    "context",
    "kubeconfig",
    IN_CLUSTER,
    "output",
    "timeout",
    "profile",
];

/// What holds for every verb, with the layers a spec is made of.
#[derive(Debug)]
pub struct Global {
    pub namespace: Option<String>,
    pub context: Option<String>,
    pub kubeconfig: Option<PathBuf>,
    pub in_cluster: InCluster,
    pub output: Output,
    /// `--timeout`; each verb has its default.
    pub timeout: Option<Duration>,
    /// Those of the keys above that are set, and by whom.
    pub origins: Keys,
    /// The flags of all verbs that set fields of a spec.
    pub flags: Layer,
    /// The configuration file's layer of a spec.
    pub config: Layer,
    pub environment: Environment,
    /// What is wrong with the above, but for what a spec has too.
    problems: Vec<Problem>,
    /// What is wrong with what a spec has too, and names itself.
    of_spec: Vec<Problem>,
}

impl Global {
    /// Puts the sources together; what is wrong with them is kept, to be told
    /// with all else that is.
    pub fn of(args: &GlobalArgs, environment: Environment) -> Self {
        resolve(args, environment)
    }

    /// For a verb without a spec.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn check(&self) -> Result<(), Failed> {
        let all = self.problems.iter().chain(&self.of_spec).cloned();
        Problems::of(all.collect()).map_err(|problems| Failed::input(problems.to_string()))
    }

    /// For a verb with one, which was made of this or cannot be.
    ///
    /// # Errors
    /// Everything that is wrong with both.
    pub fn and<T>(&self, made: Result<T, Problems>) -> Result<T, Failed> {
        let mut all = self.problems.clone();
        let made = made.map_err(|found| all.extend(found.0));
        let told = Problems::of(all).map_err(|problems| problems.to_string());
        match (made, told) {
            (Ok(made), Ok(())) => Ok(made),
            (_, told) => Err(Failed::input(told.err().unwrap_or_default())),
        }
    }
}

fn resolve(args: &GlobalArgs, environment: Environment) -> Global {
    let mut problems = Vec::new();
    let (in_file, config) = config_file(args, &environment, &mut problems);
    let mut flags = Layer::default();
    for (path, key) in [("profile", "profile"), ("budgets.total", "timeout")] {
        if let Some(text) = of_flag(args, key) {
            let origin = Origin::Flag(format!("--{key}"));
            flags.settings.push(Setting::new(path, text, &origin));
        }
    }
    let (profile, named_by) = profile_of([&flags, &environment.layer(), &config]);
    let mut of_spec = Vec::new();
    let mut keys = Keys::new();
    for key in KEYS {
        let flag = of_flag(args, key).map(|text| (text, Origin::Flag(format!("--{key}"))));
        let variable = of_variable(&environment, profile, key).unwrap_or_else(|problem| {
            problems.push(problem);
            None
        });
        let file = get(&in_file, key).map(|(text, origin)| (text.to_owned(), origin.clone()));
        let default = profile.namespace().filter(|_| key == "namespace");
        let default = default.map(|text| (text.to_owned(), Origin::Profile(profile)));
        if let Some((text, origin)) = flag.or(variable).or(file).or(default) {
            keys.push((key, text, origin));
        }
    }
    for (key, text, origin) in &keys {
        let rule = match *key {
            "timeout" => time::parse(text).err(),
            "output" => one_of::<Output>(text),
            IN_CLUSTER => one_of::<InCluster>(text),
            // One that is none does not name the profile in force.
            "profile" if named_by != *origin => Some("must be default or omnigent".to_owned()),
            _ => None,
        };
        let found = rule.map(|rule| Problem::new(named(origin, key), text, rule));
        if matches!(*key, "timeout" | "profile") {
            of_spec.extend(found);
        } else {
            problems.extend(found);
        }
    }
    let text = |key| get(&keys, key).map(|(text, _)| text.to_owned());
    let output = text("output").and_then(|text| Output::from_str(&text, false).ok());
    Global {
        namespace: text("namespace"),
        context: text("context"),
        kubeconfig: text("kubeconfig").map(PathBuf::from),
        in_cluster: text(IN_CLUSTER)
            .and_then(|text| InCluster::from_str(&text, false).ok())
            .unwrap_or(InCluster::Auto),
        output: output.unwrap_or(Output::Table),
        timeout: text("timeout").and_then(|text| time::parse(&text).ok()),
        origins: keys,
        flags,
        config,
        environment,
        problems,
        of_spec,
    }
}

fn get<'a>(keys: &'a Keys, key: &str) -> Option<(&'a str, &'a Origin)> {
    let found = keys.iter().find(|(known, ..)| *known == key);
    found.map(|(_, text, origin)| (text.as_str(), origin))
}

fn of_flag(args: &GlobalArgs, key: &str) -> Option<String> {
    let path = |path: &PathBuf| path.display().to_string();
    match key {
        "namespace" => args.namespace.clone(),
        "context" => args.context.clone(),
        "kubeconfig" => args.kubeconfig.as_ref().map(path),
        IN_CLUSTER => args.in_cluster.clone(),
        "output" => args.output.clone(),
        "timeout" => args.timeout.as_ref().map(|text| {
            let time = time::parse(text);
            time.map_or_else(|_| text.clone(), time::format)
        }),
        _ => args.profile.clone(),
    }
}

/// Podcradle's variable, else that of the profile.
fn of_variable(
    environment: &Environment,
    profile: Profile,
    key: &str,
) -> Result<Option<(String, Origin)>, Problem> {
    let of_profile = match key {
        "namespace" => profile.namespace_variable(),
        "kubeconfig" => profile.kubeconfig_variable(),
        _ => None,
    };
    for name in [Some(variable(key)), of_profile.map(str::to_owned)]
        .into_iter()
        .flatten()
    {
        if let Some(text) = environment.text(&name)? {
            return Ok(Some((text.to_owned(), Origin::Variable(name))));
        }
    }
    Ok(None)
}

fn name_of<W: ValueEnum>(word: &W) -> Option<String> {
    Some(word.to_possible_value()?.get_name().to_owned())
}

/// The rule that `text` breaks when it is none of these words.
fn one_of<W: ValueEnum>(text: &str) -> Option<String> {
    if W::from_str(text, false).is_ok() {
        return None;
    }
    let known: Vec<_> = W::value_variants().iter().filter_map(name_of).collect();
    Some(format!("must be one of {}", known.join(", ")))
}

/// A key as whoever set it knows it.
fn named(origin: &Origin, key: &str) -> String {
    match origin {
        Origin::Config(name) if key == IN_CLUSTER => format!("{name}: inCluster"),
        Origin::Config(name) => format!("{name}: {key}"),
        origin => origin.field(key, key),
    }
}

/// Keys with their values, and who set them.
pub type Keys = Vec<(&'static str, String, Origin)>;

/// The keys and the sandbox's layer of the configuration file; one that was
/// not asked for need not be there.
fn config_file(
    args: &GlobalArgs,
    environment: &Environment,
    problems: &mut Vec<Problem>,
) -> (Keys, Layer) {
    let found = config_value(args, environment);
    match found {
        Ok(Some((name, value))) => read_config(&name, &value, problems),
        Ok(None) => (Keys::new(), Layer::default()),
        Err(found) => {
            problems.extend(found.0);
            (Keys::new(), Layer::default())
        }
    }
}

/// The configuration file and what is in it, where there is one.
fn config_value(
    args: &GlobalArgs,
    environment: &Environment,
) -> Result<Option<(String, Value)>, Problems> {
    let text = |name: &str| {
        environment
            .text(name)
            .map_err(|problem| Problems(vec![problem]))
    };
    let named = match &args.config {
        Some(path) => Some(path.clone()),
        None => text("PODCRADLE_CONFIG")?.map(PathBuf::from),
    };
    let asked = named.is_some();
    let folder = match text("XDG_CONFIG_HOME")? {
        Some(folder) => Some(PathBuf::from(folder)),
        None => text("HOME")?.map(|home| Path::new(home).join(".config")),
    };
    let Some(path) = named.or_else(|| Some(folder?.join("podcradle/config.yaml"))) else {
        return Ok(None);
    };
    if !asked && !path.exists() {
        return Ok(None);
    }
    let mut documents = file::read_values(&path)?;
    let name = path.display().to_string();
    let wrong =
        |field: String, value: String, rule: &str| Problems(vec![Problem::new(field, value, rule)]);
    let value = documents.pop().unwrap_or_else(|| Map::new().into());
    if !documents.is_empty() {
        return Err(wrong(name, String::new(), "must hold one document"));
    }
    Ok(Some((name, value)))
}

fn read_config(name: &str, value: &Value, problems: &mut Vec<Problem>) -> (Keys, Layer) {
    let root = Value::from(schemars::schema_for!(ConfigFile));
    for mut problem in schema::check(&root, &root, value, "") {
        problem.field = format!("{name}: {}", problem.field);
        problems.push(problem);
    }
    let origin = Origin::Config(name.to_owned());
    let mut layer = match value.get("sandbox") {
        Some(sandbox @ Value::Object(_)) => Layer::of_value(sandbox, &origin),
        _ => Layer::default(),
    };
    let mut keys = Keys::new();
    for key in KEYS {
        let in_file = if key == IN_CLUSTER { "inCluster" } else { key };
        let Some(text) = value.get(in_file).and_then(Value::as_str) else {
            continue;
        };
        keys.push((key, text.to_owned(), origin.clone()));
        match key {
            "profile" => layer.settings.push(Setting::new("profile", text, &origin)),
            "timeout" => layer
                .settings
                .push(Setting::new("budgets.total", text, &origin)),
            _ => (),
        }
    }
    (keys, layer)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn global(args: &GlobalArgs, variables: &[(&str, &str)]) -> Result<Global, String> {
        let global = resolve(args, variables.iter().copied().collect());
        let all = global.problems.iter().chain(&global.of_spec).cloned();
        Problems::of(all.collect()).map_err(|problems| problems.to_string())?;
        Ok(global)
    }

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    #[test]
    fn the_readmes_configuration_is_one() {
        let readme = include_str!("../../README.md");
        let (_, rest) = readme.split_once("```yaml\n# config.yaml\n").unwrap();
        let file = file(rest.split_once("```").unwrap().0);
        let args = GlobalArgs {
            config: Some(file.path().into()),
            ..GlobalArgs::default()
        };
        let global = global(&args, &[]).unwrap();
        assert_eq!(global.namespace.as_deref(), Some("podcradle-sandboxes"));
        assert_eq!(global.context.as_deref(), Some("production"));
        assert_eq!(global.timeout, Some(Duration::from_mins(5)));
        assert_eq!(global.config.problems, []);
        assert_eq!(
            global.config.settings.len(),
            4,
            "three of sandbox, and the timeout"
        );
    }

    #[test]
    fn a_flag_is_over_a_variable_is_over_the_file_is_over_the_profile() {
        let file = file("namespace: of-file\nprofile: omnigent\noutput: json\n");
        let path = file.path().to_str().unwrap();
        let variables = [
            ("PODCRADLE_CONFIG", path),
            ("PODCRADLE_NAMESPACE", "of-variable"),
        ];
        let flag = GlobalArgs {
            namespace: Some("of-flag".into()),
            ..GlobalArgs::default()
        };
        let none = GlobalArgs::default();
        let namespace = |args: &GlobalArgs, variables: &[(&str, &str)]| {
            let global = global(args, variables).unwrap();
            (global.namespace.unwrap_or_default(), global.output)
        };
        assert_eq!(
            namespace(&flag, &variables),
            ("of-flag".into(), Output::Json)
        );
        assert_eq!(
            namespace(&none, &variables),
            ("of-variable".into(), Output::Json)
        );
        assert_eq!(
            namespace(&none, &variables[..1]),
            ("of-file".into(), Output::Json)
        );
        let omnigent = [
            ("PODCRADLE_PROFILE", "omnigent"),
            ("OMNIGENT_KUBERNETES_NAMESPACE", "agents"),
        ];
        assert_eq!(
            namespace(&none, &omnigent),
            ("agents".into(), Output::Table)
        );
        assert_eq!(namespace(&none, &omnigent[..1]).0, "omnigent-sandboxes");
        assert_eq!(namespace(&none, &omnigent[1..]).0, "");
    }

    #[test]
    fn a_profile_is_one_by_name() {
        for text in ["", "other"] {
            let args = GlobalArgs {
                profile: Some(text.to_owned()),
                ..GlobalArgs::default()
            };
            let refused = global(&args, &[("PODCRADLE_PROFILE", "omnigent")]).unwrap_err();
            let line = format!("--profile {text:?}: must be default or omnigent");
            assert_eq!(refused, line);
        }
    }

    #[test]
    fn what_is_wrong_with_the_configuration_is_named_with_its_file() {
        for (text, line) in [
            (
                "namespce: a",
                "namespce \"namespce\": unknown key; did you mean namespace?",
            ),
            (
                "timeout: 5",
                "timeout \"5\": must be text; put it in quotes",
            ),
            ("sandbox: 5", "sandbox \"5\": must be a mapping"),
        ] {
            let file = file(text);
            let args = GlobalArgs {
                config: Some(file.path().into()),
                ..GlobalArgs::default()
            };
            let error = global(&args, &[]).unwrap_err();
            assert_eq!(error, format!("{}: {line}", file.path().display()));
        }
        let args = GlobalArgs {
            config: Some("/nowhere".into()),
            ..GlobalArgs::default()
        };
        assert!(
            global(&args, &[])
                .unwrap_err()
                .contains("\"/nowhere\": cannot be read")
        );
        assert!(global(&GlobalArgs::default(), &[("HOME", "/nowhere")]).is_ok());
    }

    #[test]
    fn wrong_values_are_named_with_their_source() {
        let variables = [
            ("PODCRADLE_OUTPUT", "xml"),
            ("PODCRADLE_TIMEOUT", "soon"),
            ("PODCRADLE_PROFILE", "other"),
        ];
        let error = global(&GlobalArgs::default(), &variables).unwrap_err();
        for start in [
            "PODCRADLE_OUTPUT \"xml\": must be one of table",
            "PODCRADLE_TIMEOUT \"soon\": must be a time",
            "PODCRADLE_PROFILE \"other\": must be default or omnigent",
        ] {
            assert!(error.lines().any(|line| line.starts_with(start)), "{error}");
        }
    }
}
