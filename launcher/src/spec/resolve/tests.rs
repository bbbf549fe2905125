mod every_field;
mod files;
mod taken;

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

fn problems(merged: &Merged, environment: &Environment) -> Vec<String> {
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
        problems(&merged, &none),
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
    let found = problems(&merged, &variables);
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
        let found = problems(&merge(flags, &none, &[document]), &none);
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
    let both: Environment = [("PODCRADLE_OWNER", "o"), ("PODCRADLE_TTL", "1h")]
        .into_iter()
        .collect();
    let found = problems(&merge(&Layer::default(), &both, &[&plain]), &both);
    let found: Vec<_> = found.iter().filter(|l| l.contains("never both")).collect();
    assert!(
        found.len() == 1 && found[0].starts_with("PODCRADLE_OWNER"),
        "{found:?}"
    );
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
