use super::*;
use crate::spec::fields::{self, FIELDS, Form};
use crate::spec::file;

fn environment(variables: &[(&str, &str)]) -> Environment {
    variables.iter().copied().collect()
}

fn flags(given: &[(&str, &str)]) -> Layer {
    let mut layer = Layer::default();
    for (flag, text) in given {
        let field = FIELDS.iter().find(|field| field.flag == *flag).unwrap();
        let origin = Origin::Flag(format!("--{flag}"));
        match field.settings(&[(*text).to_owned()], &origin) {
            Ok(settings) => layer.settings.extend(settings),
            Err(problems) => layer.problems.extend(problems),
        }
    }
    layer
}

fn document(text: &str) -> Layer {
    let mut documents = file::parse(text, "spec.yaml").unwrap();
    assert_eq!(documents.len(), 1);
    documents.remove(0)
}

fn config(text: &str) -> Layer {
    let value = file::values(text, "c").unwrap().remove(0);
    Layer::of_value(&value, &Origin::Config("config.yaml".to_owned()))
}

fn problems(merged: Merged, environment: &Environment) -> Vec<String> {
    let found = merged.finish("a", environment).err();
    let found = found.map_or_else(Vec::new, |problems| problems.0);
    found.iter().map(ToString::to_string).collect()
}

#[test]
fn the_highest_layer_that_sets_a_value_wins_and_is_named() {
    let flags = flags(&[("memory-limit", "6Gi")]);
    let variables = environment(&[
        ("PODCRADLE_MEMORY_LIMIT", "5Gi"),
        ("PODCRADLE_CPU_LIMIT", "5"),
    ]);
    let document =
        document("{image: a, resources: {memoryLimit: 4Gi, cpuLimit: 4, cpuRequest: 1}}");
    let config = config("{resources: {cpuLimit: 3, cpuRequest: 2, memoryRequest: 2Gi}}");
    let merged = merge(&flags, &variables, &[&document, &config]);
    for (path, origin) in [
        (
            "resources.memoryLimit",
            Origin::Flag("--memory-limit".into()),
        ),
        (
            "resources.cpuLimit",
            Origin::Variable("PODCRADLE_CPU_LIMIT".into()),
        ),
        ("resources.cpuRequest", Origin::File("spec.yaml".into())),
        (
            "resources.memoryRequest",
            Origin::Config("config.yaml".into()),
        ),
        ("home", Origin::Default),
    ] {
        assert_eq!(*merged.origin(path), origin, "{path}");
    }
    let spec = merged.finish("a", &variables).unwrap();
    assert_eq!(spec.resources.memory_limit, "6Gi");
    assert_eq!(spec.resources.cpu_limit, "5");
    assert_eq!(spec.resources.cpu_request, "1");
    assert_eq!(spec.resources.memory_request, "2Gi");
    assert!(spec.sandbox.starts_with("podcradle-a-") && spec.launch_id.len() == 16);
}

#[test]
fn a_default_request_follows_a_lower_limit_and_one_that_was_asked_for_does_not() {
    let none = Environment::default();
    let document = document("{image: a, resources: {cpuLimit: 0.25}}");
    let given = [
        ("memory-limit", "512Mi"),
        ("ephemeral-storage-limit", "1Mi"),
    ];
    let merged = merge(&flags(&given), &none, &[&document]);
    for path in ["resources.cpuRequest", "resources.memoryRequest"] {
        assert_eq!(*merged.origin(path), Origin::Lowered, "{path}");
    }
    let limit = "resources.memoryLimit";
    assert_eq!(*merged.origin(limit), Origin::Flag("--memory-limit".into()));
    let r = merged.finish("a", &none).unwrap().resources;
    assert_eq!((&*r.cpu_request, &*r.cpu_limit), ("0.25", "0.25"));
    assert_eq!((&*r.memory_request, &*r.memory_limit), ("512Mi", "512Mi"));
    // None is asked for by default: the cluster takes the limit.
    assert_eq!(r.ephemeral_storage_request, None);

    let merged = merge(&flags(&[("memory-limit", "1025Mi")]), &none, &[&document]);
    assert_eq!(*merged.origin("resources.memoryRequest"), Origin::Default);
    let r = merged.finish("a", &none).unwrap().resources;
    assert_eq!(r.memory_request, "1Gi");

    let config = config("{image: a, resources: {memoryRequest: 1Gi}}");
    let merged = merge(&flags(&[("memory-limit", "512Mi")]), &none, &[&config]);
    assert_eq!(
        problems(merged, &none),
        ["config.yaml: sandbox.resources.memoryRequest \"1Gi\": must not be above its limit 512Mi"]
    );
}

#[test]
fn names_are_united_lists_replaced_and_labels_merged() {
    let variables = environment(&[
        ("PODCRADLE_ENV", "LANG,TZ"),
        ("LANG", "C"),
        ("TZ", ""),
        ("EDITOR", "vi"),
    ]);
    let flags = flags(&[("image-pull-secret", "mine"), ("label", "team=b")]);
    let document = document(
        "{image: a, env: [EDITOR], imagePullSecrets: [x, y], labels: {team: a, app.example/x: c}}",
    );
    let merged = merge(&flags, &variables, &[&document]);
    assert_eq!(
        *merged.origin("env.EDITOR"),
        Origin::File("spec.yaml".into())
    );
    let spec = merged.finish("a", &variables).unwrap();
    let pairs = |map: &BTreeMap<String, String>| format!("{map:?}");
    assert_eq!(
        pairs(&spec.env),
        r#"{"EDITOR": "vi", "LANG": "C", "TZ": ""}"#
    );
    assert_eq!(
        pairs(&spec.labels),
        r#"{"app.example/x": "c", "team": "b"}"#
    );
    assert_eq!(spec.image_pull_secrets, ["mine"]);
}

#[test]
fn another_repository_does_not_inherit_a_branch() {
    let document = document("{image: a, repo: {url: 'https://g/x', branch: old, dir: d}}");
    let none = Environment::default();
    let spec = merge(&flags(&[("repo", "https://g/y")]), &none, &[&document]);
    let repo = spec.finish("a", &none).unwrap().repo.unwrap();
    assert_eq!(
        (repo.url.as_str(), repo.branch.as_deref(), repo.dir()),
        ("https://g/y", None, "y")
    );
    let spec = merge(&flags(&[("branch", "new")]), &none, &[&document]);
    let repo = spec.finish("a", &none).unwrap().repo.unwrap();
    assert_eq!(
        (repo.url.as_str(), repo.branch.as_deref(), repo.dir()),
        ("https://g/x", Some("new"), "d")
    );
}

#[test]
fn null_and_an_empty_flag_take_away_what_lower_layers_set() {
    let none = Environment::default();
    let config = config(
        "{image: a, priorityClass: high, networkPolicy: {egress: [10.0.0.0/8]}, repo: {url: 'https://g/x'}}",
    );
    let document = document("{networkPolicy: null, repo: null}");
    let merged = merge(
        &flags(&[("priority-class", "")]),
        &none,
        &[&document, &config],
    );
    let spec = merged.finish("a", &none).unwrap();
    assert_eq!(
        (spec.priority_class, spec.network_policy, spec.repo),
        (None, None, None)
    );
}

#[test]
fn a_network_policy_by_flag_keeps_the_ranges_of_the_file() {
    let none = Environment::default();
    let document = document("{image: a, networkPolicy: {egress: [10.0.0.0/8]}}");
    let ranges = |given: &[(&str, &str)]| {
        let spec = merge(&flags(given), &none, &[&document])
            .finish("a", &none)
            .unwrap();
        spec.network_policy.map(|policy| policy.egress)
    };
    assert_eq!(
        ranges(&[("network-policy", "true")]),
        Some(vec!["10.0.0.0/8".to_owned()])
    );
    assert_eq!(ranges(&[("egress", "::/0")]), Some(vec!["::/0".to_owned()]));
    assert_eq!(ranges(&[("network-policy", "false")]), None);
}

#[test]
fn every_problem_of_every_layer_is_reported_as_its_author_knows_it() {
    let variables = environment(&[
        ("PODCRADLE_TTL", "never"),
        ("PODCRADLE_GRACE", "28"),
        ("PODCRADLE_ENV", "A_TOKEN UNSET B_KEY=hunter2"),
    ]);
    let flags = flags(&[
        ("cpu-limit", "lots"),
        ("mount", "claim=c,path=/proc"),
        ("restart", "always"),
    ]);
    let document = document(
        "{image: 5, resources: {memoryLimt: 4Gi}, wait: soon, budgets: {pull: 20m, init: x}}",
    );
    let config = config("{homeSizeLimit: 0.5GB, runAs: -1, grace: '20'}");
    let merged = merge(&flags, &variables, &[&document, &config]);
    let found = problems(merged, &variables);
    for start in [
        "PODCRADLE_TTL \"never\": must be a time",
        "PODCRADLE_GRACE \"28\": grace 28 + drain 5",
        "PODCRADLE_ENV \"A_TOKEN\": looks like a credential",
        "PODCRADLE_ENV \"UNSET\": is not set",
        "PODCRADLE_ENV \"B_KEY\": must be a name alone",
        "--cpu-limit \"lots\": must be a quantity",
        "--mount: mounts[0].path \"/proc\": must not cover",
        "--restart \"always\": must be on-failure",
        "spec.yaml: image \"5\": must be text; put it in quotes",
        "spec.yaml: resources.memoryLimt \"memoryLimt\": unknown key; did you mean memoryLimit?",
        "spec.yaml: wait \"soon\": must be none, started or ready",
        "spec.yaml: budgets.pull \"20m\": must not be above the total, 15m",
        "spec.yaml: budgets.init \"x\": must be a time",
        "config.yaml: sandbox.homeSizeLimit \"0.5GB\": must be a quantity",
        "config.yaml: sandbox.runAs \"-1\": must be a user id",
        "config.yaml: sandbox.grace \"20\": must be a whole number",
    ] {
        assert!(
            found.iter().any(|line| line.starts_with(start)),
            "{start}: {found:#?}"
        );
    }
    assert_eq!(found.len(), 16, "each once: {found:#?}");
    assert!(!format!("{found:?}").contains("hunter2"), "{found:?}");
}

#[test]
fn an_owner_and_a_time_to_live_exclude_each_other() {
    let none = Environment::default();
    let conflict = |flags: &Layer, document: &Layer| {
        let found = problems(merge(flags, &none, &[document]), &none);
        found
            .iter()
            .any(|line| line.contains("an owner or a time to live"))
    };
    let plain = document("{image: a}");
    assert!(conflict(&flags(&[("owner", "o"), ("ttl", "1h")]), &plain));
    assert!(conflict(
        &flags(&[("ttl", "1h")]),
        &document("{image: a, owner: o}")
    ));
    assert!(conflict(
        &Layer::default(),
        &document("{image: a, owner: o, ttl: 1h}")
    ));
    // A default time to live, even one of the configuration, gives way.
    assert!(!conflict(
        &flags(&[("owner", "o")]),
        &document("{image: a, ttl: 1h}")
    ));
    assert!(!conflict(&flags(&[("owner", "o")]), &plain));
}

#[test]
fn the_image_of_the_configuration_is_the_baked_one() {
    let none = Environment::default();
    let config = config("{image: ours, supervisorImage: s}");
    let way = |given: &[(&str, &str)]| {
        let mut flags = flags(given);
        flags.settings.push(Setting::new(
            "host",
            vec!["agent"],
            &Origin::Flag("-- HOST".into()),
        ));
        merge(&flags, &none, &[&config])
            .finish("a", &none)
            .unwrap()
            .inject()
    };
    assert_eq!(way(&[]), crate::spec::Inject::Baked);
    let merged = merge(&Layer::default(), &none, &[&config]);
    assert_eq!(merged.value("bakedImage"), Some(&"ours".into()));
    let of_config = Origin::Config("config.yaml".into());
    assert_eq!(*merged.origin("bakedImage"), of_config);
    assert_eq!(way(&[("image", "theirs")]), crate::spec::Inject::Copy);
}

/// A text for each field, and the same in a file.
fn sample(field: &fields::Field) -> (&'static str, &'static str) {
    match (field.path, field.form) {
        ("profile", _) => ("omnigent", "omnigent"),
        ("inject", _) => ("copy", "copy"),
        ("tokenDelivery", _) => ("secret-key-ref", "secret-key-ref"),
        ("wait", _) => ("started", "started"),
        ("ttl", _) => ("none", "none"),
        (
            "maxLifetime" | "budgets.total" | "budgets.schedule" | "budgets.pull" | "budgets.init"
            | "budgets.start",
            _,
        ) => ("90s", "90s"),
        (_, Form::Text) => ("x1", "x1"),
        (_, Form::Number) => ("17", "17"),
        (_, Form::Switch) => ("true", "true"),
        (_, Form::List) => ("a", "[a]"),
        (_, Form::Names) => ("LANG", "[LANG]"),
        (_, Form::Pairs) => ("a.b/c=d", "{a.b/c: d}"),
        (_, Form::Mounts) => (
            "claim=c,path=/d,writable",
            "[{claim: c, path: /d, writable: true}]",
        ),
        (_, Form::Tolerations) => (
            "k=v:NoSchedule",
            "[{key: k, operator: Equal, value: v, effect: NoSchedule}]",
        ),
        (_, Form::Restart) => ("on-failure:3", "{max: 3}"),
        (_, Form::Policy) => ("true", "{}"),
        ("affinity", Form::Object) => (r#"{"podAffinity": {}}"#, "{podAffinity: {}}"),
        (_, Form::Object) => (r#"{"spec": {"a": 1}}"#, "{spec: {a: 1}}"),
    }
}

#[test]
fn a_flag_a_variable_and_a_file_say_the_same() {
    let none = Environment::default();
    for field in FIELDS {
        let (text, in_file) = sample(field);
        let yaml = field
            .path
            .rsplit('.')
            .fold(in_file.to_owned(), |inner, key| {
                format!("{{{key}: {inner}}}")
            });
        let of_file = merge(&Layer::default(), &none, &[&document(&yaml)]);
        assert_eq!(of_file.problems, [], "{yaml}");
        let of_flag = merge(&flags(&[(field.flag, text)]), &none, &[]);
        assert_eq!(of_flag.problems, [], "--{}", field.flag);
        assert_eq!(of_flag.tree, of_file.tree, "--{}", field.flag);
        assert_ne!(
            of_flag.tree,
            merge(&Layer::default(), &none, &[]).tree,
            "--{} does nothing",
            field.flag
        );
        if let Some(variable) = field.variable() {
            let of_variable = merge(&Layer::default(), &environment(&[(&variable, text)]), &[]);
            assert_eq!(of_variable.tree, of_file.tree, "{variable}");
        }
    }
}

/// Lower layers set a field, one above takes it away: no layer below it counts.
#[test]
fn null_and_an_empty_flag_take_away_any_field() {
    let none = Environment::default();
    let spec_of = |layers: &[&Layer]| {
        let merged = merge(layers[0], &none, &layers[1..]);
        assert_eq!(merged.problems, []);
        let mut spec = merged.spec().unwrap();
        // What is left of a policy is one without ranges, of a repository nothing.
        spec.repo = spec
            .repo
            .filter(|repo| *repo != crate::spec::Repo::default());
        spec.network_policy = spec
            .network_policy
            .filter(|policy| !policy.egress.is_empty());
        spec
    };
    let nested = |path: &str, value: &str| {
        let keys = path.rsplit('.');
        keys.fold(value.to_owned(), |inner, key| format!("{{{key}: {inner}}}"))
    };
    let untouched = spec_of(&[&Layer::default()]);
    for field in FIELDS {
        let lower = document(&nested(field.path, sample(field).1));
        let set = spec_of(&[&Layer::default(), &lower]);
        let policy = field.path == "networkPolicy";
        assert!(set != untouched || policy, "{} is not set", field.path);
        let by_flag = spec_of(&[&flags(&[(field.flag, "")]), &lower]);
        assert!(by_flag == untouched, "--{} ''", field.flag);
        let by_null = document(&nested(field.path, "null"));
        let by_null = spec_of(&[&Layer::default(), &by_null, &lower]);
        assert!(by_null == untouched, "{}: null", field.path);
    }
    for section in ["budgets", "resources", "repo", "networkPolicy"] {
        let lower = document(
            "{budgets: {pull: 1s}, resources: {cpuLimit: 9}, repo: {url: u}, networkPolicy: {egress: [x]}}",
        );
        let null = document(&nested(section, "null"));
        let merged = merge(&Layer::default(), &none, &[&null, &lower]);
        let plain = merge(&Layer::default(), &none, &[]);
        assert_eq!(merged.value(section), plain.value(section));
    }
}

#[test]
fn an_empty_text_takes_away_what_stands_before_it_too() {
    let none = Environment::default();
    let given = |texts: &[&str]| {
        let field = FIELDS.iter().find(|field| field.flag == "label").unwrap();
        let texts: Vec<_> = texts.iter().map(|&text| text.to_owned()).collect();
        let origin = Origin::Flag("--label".into());
        let settings = field.settings(&texts, &origin).unwrap();
        let flags = Layer {
            settings,
            problems: Vec::new(),
        };
        let lower = document("{labels: {a: b}}");
        merge(&flags, &none, &[&lower]).spec().unwrap().labels
    };
    assert_eq!(given(&["c=d"]).len(), 2);
    assert_eq!(
        given(&["x=y", "", "c=d"]),
        [("c".into(), "d".into())].into()
    );
    let one = document("{labels: {a: null}}");
    let lower = document("{labels: {a: b, c: d}}");
    let labels = merge(&Layer::default(), &none, &[&one, &lower])
        .spec()
        .unwrap()
        .labels;
    assert_eq!(labels, [("c".into(), "d".into())].into());
}

#[test]
fn the_section_of_a_value_says_where_it_came_from() {
    let none = Environment::default();
    let lower = document("{repo: {url: u, branch: b}}");
    let merged = merge(
        &flags(&[("repo", "v"), ("egress", "::/0")]),
        &none,
        &[&lower],
    );
    for (path, flag) in [
        ("repo.url", "--repo"),
        ("repo.branch", "--repo"),
        ("networkPolicy", "--egress"),
    ] {
        assert_eq!(*merged.origin(path), Origin::Flag(flag.into()), "{path}");
    }
}

#[test]
fn every_field_of_the_schema_has_its_flag() {
    let root = schema::spec();
    let mut paths = Vec::new();
    for key in root["properties"].as_object().unwrap().keys() {
        let inner =
            schema::at(root, std::slice::from_ref(key)).map(|node| match node.get("$ref") {
                Some(reference) => root.pointer(&reference.as_str().unwrap()[1..]).unwrap(),
                None => node,
            });
        let sections = ["repo", "resources", "budgets", "networkPolicy"];
        if sections.contains(&key.as_str()) {
            let node = inner.unwrap();
            let node = node.get("anyOf").map_or(node, |any| {
                root.pointer(&any[0]["$ref"].as_str().unwrap()[1..])
                    .unwrap()
            });
            let members = node["properties"].as_object().unwrap().keys();
            paths.extend(members.map(|member| format!("{key}.{member}")));
        } else {
            paths.push(key.clone());
        }
    }
    assert!(paths.len() > 50, "{paths:?}");
    for path in paths {
        assert!(
            path == "host" || fields::of_path(&path).is_some(),
            "{path} has no flag"
        );
    }
}

#[test]
fn each_document_of_a_file_is_a_sandbox_with_its_index() {
    let documents = file::parse("- {image: a}\n- {imag: b}\n---\nimage: c\n", "many.yaml").unwrap();
    let none = Environment::default();
    let found: Vec<_> = documents
        .iter()
        .map(|d| problems(merge(&Layer::default(), &none, &[d]), &none))
        .collect();
    assert_eq!(found[0], Vec::<String>::new());
    assert!(
        found[1][0].starts_with("many.yaml[1]: imag \"imag\": unknown key; did you mean image?"),
        "{found:?}"
    );
    assert_eq!(found[2], Vec::<String>::new());
}

#[test]
fn words_of_older_yaml_are_text() {
    let none = Environment::default();
    let document = document("{image: a, host: [y, no, on, 007, 1_0], hostUsers: true}");
    let spec = merge(&Layer::default(), &none, &[&document])
        .finish("a", &none)
        .unwrap();
    assert_eq!(spec.host, ["y", "no", "on", "007", "1_0"]);
    assert_eq!(spec.host_users, Some(true));
}

#[test]
fn what_is_no_spec_file_is_refused_in_one_line() {
    for (text, rule) in [
        ("a: [", "is no YAML"),
        ("", "holds no sandbox"),
        ("a: 1\na: 2", "is no YAML"),
    ] {
        let error = file::parse(text, "f").unwrap_err().to_string();
        assert!(
            error.contains(rule) && error.lines().count() == 1,
            "{error}"
        );
    }
    let scalar = file::parse("just text", "f").unwrap().remove(0);
    assert!(scalar.problems[0].to_string().contains("must be a mapping"));
}

#[test]
fn the_readmes_example_is_a_spec() {
    let readme = include_str!("../../../README.md");
    let (_, rest) = readme.split_once("```yaml\n# spec.yaml\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    let variables = environment(&[("LANG", "C.UTF-8")]);
    let spec = merge(&Layer::default(), &variables, &[&document(example)])
        .finish("a", &variables)
        .unwrap();
    assert_eq!(spec.repo.unwrap().branch.as_deref(), Some("main"));
    assert_eq!(spec.env["LANG"], "C.UTF-8");
    assert_eq!(spec.mounts.len(), 2);
}
