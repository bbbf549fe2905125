use super::*;

#[test]
fn the_published_schema_is_the_specs_own() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/sandbox.schema.json");
    if std::env::var_os("PODCRADLE_UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(path, text()).unwrap();
    }
    let published = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        published == text(),
        "PODCRADLE_UPDATE_SNAPSHOTS=1 writes {path} for review"
    );
}

#[test]
fn a_misspelt_name_leads_to_the_nearest() {
    let known = [
        "cpuLimit",
        "cpuRequest",
        "memoryLimit",
        "nodeSelector",
        "image",
    ];
    for (name, near) in [
        ("cpuLimt", Some("cpuLimit")),
        ("cpu_limit", Some("cpuLimit")),
        ("cpu-request", Some("cpuRequest")),
        ("nodeselector", Some("nodeSelector")),
        ("imgae", Some("image")),
        ("zzz", None),
    ] {
        assert_eq!(nearest(name, known.into_iter()), near, "{name}");
    }
}

#[test]
fn unknown_keys_are_found_at_any_depth() {
    let affinity = serde_json::json!({"affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "a", "operator": "In", "valeus": ["b"]}]}]}}}});
    let found = check(spec(), spec(), &affinity, "");
    assert_eq!(found.len(), 1, "{found:?}");
    let start = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].valeus";
    assert_eq!(found[0].field, start);
    assert!(found[0].rule.ends_with("did you mean values?"), "{found:?}");
}

#[test]
fn the_value_of_an_unknown_key_is_not_shown() {
    let value =
        serde_json::json!({"token": "hunter2", "mounts": [{"password": "hunter2", "path": "/a"}]});
    let found = check(spec(), spec(), &value, "");
    assert_eq!(found.len(), 2);
    assert!(!format!("{found:?}").contains("hunter2"), "{found:?}");
}

#[test]
fn a_value_of_another_type_is_told_what_would_be_right() {
    for (value, rule) in [
        (
            serde_json::json!({"grace": 5_000_000_000_u64}),
            "must not be above 4294967295",
        ),
        (
            serde_json::json!({"grace": -1}),
            "must be a whole number from 0 on",
        ),
        (serde_json::json!({"grace": 1.5}), "must be a whole number"),
        (
            serde_json::json!({"loginShell": "yes"}),
            "must be true or false",
        ),
        (
            serde_json::json!({"image": 1}),
            "must be text; put it in quotes",
        ),
        (serde_json::json!({"env": "LANG"}), "must be a list"),
        (
            serde_json::json!({"mounts": [{"path": null}]}),
            "must be text",
        ),
        (serde_json::json!({"budgets": 5}), "must be a mapping"),
        (
            serde_json::json!({"wait": "soon"}),
            "must be none, started or ready",
        ),
    ] {
        let found = check(spec(), spec(), &value, "");
        assert_eq!(found.len(), 1, "{value}: {found:?}");
        assert_eq!(found[0].rule, rule, "{value}");
    }
    let quantities = serde_json::json!({"resources": {"cpuLimit": 1.5, "memoryLimit": "2Gi", "ephemeralStorageLimit": null}});
    assert_eq!(check(spec(), spec(), &quantities, ""), []);
}

#[test]
fn no_secret_is_told_with_a_wrong_type() {
    for value in [
        json!({"env": {"API_KEY": "hunter2"}}),
        json!({"env": "API_KEY=hunter2"}),
        json!({"env": [{"API_KEY": "hunter2"}]}),
        json!({"env": [["hunter2"]]}),
        json!({"host": "agent --key hunter2"}),
        json!({"repo": "https://u:hunter2@git.example/x"}),
        json!({"repo": {"url": ["https://u:hunter2@git.example/x"]}}),
        json!({"server": {"url": "https://u:hunter2@server.example"}}),
    ] {
        let found = check(spec(), spec(), &value, "");
        assert_eq!(found.len(), 1, "{value}: {found:?}");
        assert!(!found[0].to_string().contains("hunter2"), "{found:?}");
    }
}

#[test]
fn null_is_allowed_at_every_field() {
    let mut fields = 0;
    let mut all = vec![(spec().clone(), Vec::new())];
    while let Some((node, path)) = all.pop() {
        let known = plain(spec(), &node)["properties"].as_object().cloned();
        for (key, node) in known.into_iter().flatten() {
            let path = [&path[..], &[key]].concat();
            let value = path
                .iter()
                .rev()
                .fold(Value::Null, |inner, key| json!({ key: inner }));
            assert_eq!(check(spec(), spec(), &value, ""), [], "{value}");
            fields += 1;
            // What is deeper is Kubernetes' own, or replaced as a whole.
            if ["repo", "resources", "budgets", "networkPolicy"].contains(&path[0].as_str()) {
                all.push((node, path));
            }
        }
    }
    assert!(fields > 60, "{fields}");
    let label = json!({"labels": {"team": null}});
    assert_eq!(check(spec(), spec(), &label, ""), []);
}

#[test]
fn an_overlay_may_hold_anything() {
    let value = serde_json::json!({"overlay": {"spec": {"no": ["schema", {"of": 1}]}}});
    assert_eq!(check(spec(), spec(), &value, ""), []);
}
