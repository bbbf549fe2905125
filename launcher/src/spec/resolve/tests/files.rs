//! What a spec file may hold.

use super::*;

#[test]
fn each_document_of_a_file_is_a_sandbox_with_its_index() {
    let documents = file::parse("- {image: a}\n- {imag: b}\n---\nimage: c\n", "many.yaml").unwrap();
    let none = Environment::default();
    let found: Vec<_> = documents
        .iter()
        .map(|d| problems(&merge(&Layer::default(), &none, &[d]), &none))
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
    let readme = include_str!("../../../../README.md");
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
