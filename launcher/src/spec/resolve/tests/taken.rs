//! What takes away, and what gives way.

use super::every_field::sample;
use super::*;

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
