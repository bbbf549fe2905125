//! Each field by flag, by variable and in a file.

use super::*;

/// A text for each field, and the same in a file.
pub fn sample(field: &fields::Field) -> (&'static str, &'static str) {
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
