//! What holds for every spec, valid or not.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;

use super::environment::Environment;
use super::resolve::merge;
use super::*;

/// Text as people write it, and text that nobody should.
fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z0-9./:-]{0,12}", any::<String>()]
}

fn maybe<T: std::fmt::Debug + Clone>(
    inner: impl Strategy<Value = T>,
) -> impl Strategy<Value = Option<T>> {
    proptest::option::of(inner)
}

fn map() -> impl Strategy<Value = BTreeMap<String, String>> {
    proptest::collection::btree_map(text(), text(), 0..3)
}

fn list() -> impl Strategy<Value = Vec<String>> {
    proptest::collection::vec(text(), 0..3)
}

fn time() -> impl Strategy<Value = Duration> {
    (0u64..400_000_000).prop_map(Duration::from_secs)
}

fn mount() -> impl Strategy<Value = Mount> {
    (text(), maybe(text()), maybe(text()), any::<bool>()).prop_map(
        |(path, claim, secret, writable)| Mount {
            path,
            claim,
            secret,
            writable,
        },
    )
}

fn repo() -> impl Strategy<Value = Repo> {
    (text(), maybe(text()), text()).prop_map(|(url, branch, dir)| Repo { url, branch, dir })
}

prop_compose! {
    fn images()(image in text(), prep in maybe(text()), pull in list(), arch in maybe("[b-z]{1,8}"),
        inject in prop_oneof![Just(Inject::Auto), Just(Inject::Copy), Just(Inject::ImageVolume)],
        supervisor in maybe(text()), baked in maybe(text())) -> SandboxSpec {
        SandboxSpec { image, prep_image: prep, image_pull_secrets: pull, arch, inject,
            supervisor_image: supervisor, baked_image: baked, ..SandboxSpec::default() }
    }
}

prop_compose! {
    fn hosts()(of in images(), host in list(), server in maybe(text()), names in list(),
        restart in maybe(maybe(any::<u32>())), repo in maybe(repo()), labels in map(), selector in map(),
        login_shell in any::<bool>(), host_users in maybe(any::<bool>()), run_as in any::<i64>()) -> SandboxSpec {
        SandboxSpec { host, server, labels, node_selector: selector, repo, login_shell, host_users, run_as,
            env: names.into_iter().map(|name| (name, String::new())).collect(),
            restart: restart.map(|max| Restart { max }), ..of }
    }
}

prop_compose! {
    fn specs()(of in hosts(), mounts in proptest::collection::vec(mount(), 0..3), egress in maybe(list()),
        size in maybe(text()), storage in maybe(text()), ttl in maybe(time()), pull in time(), total in time(),
        grace in any::<u32>(), owner in maybe(text()), overlay in any::<bool>(), placed in any::<bool>()) -> SandboxSpec {
        let mut spec = SandboxSpec { mounts, home_size_limit: size, ttl, grace, owner,
            network_policy: egress.map(|egress| NetworkPolicy { egress }), ..of };
        spec.resources.ephemeral_storage_limit = storage;
        spec.budgets.pull = pull;
        spec.budgets.total = total;
        if overlay {
            spec.overlay = json!({"spec": {"a": [1, null, {"b": false}]}}).as_object().cloned();
        }
        if placed {
            spec.tolerations = serde_json::from_value(json!([{"key": "a", "tolerationSeconds": 3}])).unwrap();
            spec.affinity = serde_json::from_value(json!({"podAffinity": {}})).unwrap();
        }
        spec
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_spec_is_read_back_as_it_was_written(spec in specs()) {
        let written = serde_json::to_value(&spec).unwrap();
        prop_assert_eq!(serde_json::from_value::<SandboxSpec>(written).unwrap(), spec);
    }

    #[test]
    fn what_is_written_follows_the_schema(spec in specs()) {
        let written = serde_json::to_value(&spec).unwrap();
        prop_assert_eq!(schema::check(schema::spec(), schema::spec(), &written, ""), []);
    }

    #[test]
    fn a_file_with_every_field_is_the_spec(spec in specs()) {
        let written = serde_json::to_value(&spec).unwrap();
        let layer = Layer::of_value(&written, &Origin::File("f".into()));
        let merged = merge(&Layer::default(), &Environment::default(), &[&layer]);
        prop_assert_eq!(&merged.problems, &[]);
        prop_assert_eq!(merged.spec().unwrap(), spec);
    }

    #[test]
    fn no_file_is_too_strange_to_be_refused(text in any::<String>()) {
        if let Ok(documents) = file::parse(&text, "f") {
            let none = Environment::default();
            for document in &documents {
                let spec = merge(&Layer::default(), &none, &[document]).finish("a", &none);
                prop_assert!(spec.is_err(), "there is no image in {:?}", text);
            }
        }
    }
}
