//! Where a Pod may go: architecture and tolerations; `affinity` has its own
//! file.

use super::Checks;
use crate::name;
use crate::spec::SandboxSpec;

/// The node label of the architecture.
const ARCH: &str = "kubernetes.io/arch";

/// Architectures as nodes name them.
const ARCHITECTURES: [&str; 10] = [
    "amd64", "arm64", "386", "arm", "loong64", "mips64le", "ppc64", "ppc64le", "riscv64", "s390x",
];

pub fn check(spec: &SandboxSpec, c: &mut Checks) {
    if let Some(arch) = &spec.arch {
        let known = ARCHITECTURES.contains(&arch.as_str());
        let rule = format!("must be any, or one of {}", ARCHITECTURES.join(", "));
        c.require(known, "arch", arch, &rule);
        if let Some(selected) = spec.node_selector.get(ARCH).filter(|other| *other != arch) {
            c.refuse(
                "arch",
                arch,
                format!("nodeSelector asks for {ARCH}={selected}"),
            );
        }
    }
    tolerations(spec, c);
    if let Some(affinity) = &spec.affinity {
        super::affinity::check("affinity", affinity, c);
    }
}

fn tolerations(spec: &SandboxSpec, c: &mut Checks) {
    for (index, toleration) in spec.tolerations.iter().enumerate() {
        let field = |name: &str| format!("tolerations[{index}].{name}");
        let operator = toleration.operator.as_deref().unwrap_or("Equal");
        let known = ["Exists", "Equal"].contains(&operator);
        c.require(
            known,
            &field("operator"),
            operator,
            "must be Exists or Equal",
        );
        if let Some(effect) = toleration
            .effect
            .as_deref()
            .filter(|effect| !effect.is_empty())
        {
            let known = ["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect);
            let rule = "must be NoSchedule, PreferNoSchedule or NoExecute";
            c.require(known, &field("effect"), effect, rule);
        }
        let key = toleration.key.as_deref().unwrap_or_default();
        let value = toleration.value.as_deref().unwrap_or_default();
        if key.is_empty() {
            let rule = "may be left out with operator Exists alone, which tolerates everything";
            c.require(operator == "Exists", &field("key"), key, rule);
        } else {
            c.name(&field("key"), key, name::check_label_key(key));
        }
        if operator == "Exists" {
            let rule = "operator Exists has no value";
            c.require(value.is_empty(), &field("value"), value, rule);
        } else {
            c.name(&field("value"), value, name::check_label_value(value));
        }
        if let Some(seconds) = toleration.toleration_seconds {
            let right = toleration.effect.as_deref() == Some("NoExecute");
            let rule = "counts with effect NoExecute alone";
            c.require(right, &field("tolerationSeconds"), seconds, rule);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tests::{problems, refused};
    use super::*;

    #[test]
    fn an_architecture_is_named_as_nodes_name_it() {
        for arch in ["amd64", "arm64", "riscv64"] {
            assert_eq!(problems(|s| s.arch = Some(arch.into())).len(), 0, "{arch}");
        }
        for arch in ["x86_64", "aarch64", "AMD64", ""] {
            refused("arch", "one of amd64, arm64", |s| {
                s.arch = Some(arch.into());
            });
        }
        refused("arch \"arm64\"", "kubernetes.io/arch=amd64", |s| {
            s.arch = Some("arm64".into());
            s.node_selector.insert(ARCH.into(), "amd64".into());
        });
    }

    #[test]
    fn tolerations_are_those_a_pod_may_have() {
        let with = |toleration: Value| {
            move |s: &mut SandboxSpec| {
                s.tolerations = vec![serde_json::from_value(toleration).unwrap()];
            }
        };
        for good in [
            json!({"operator": "Exists"}),
            json!({"key": "gpu", "value": "yes", "effect": "NoSchedule"}),
            json!({"key": "example.com/x", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}),
        ] {
            assert_eq!(problems(with(good)), Vec::<String>::new());
        }
        for (bad, field, rule) in [
            (
                json!({"key": "a", "operator": "In"}),
                "operator",
                "Exists or Equal",
            ),
            (
                json!({"key": "a", "effect": "Never"}),
                "effect",
                "NoSchedule",
            ),
            (json!({"value": "a"}), "key", "Exists"),
            (json!({"key": "a b"}), "key", "63"),
            (
                json!({"key": "a", "operator": "Exists", "value": "b"}),
                "value",
                "no value",
            ),
            (
                json!({"key": "a", "tolerationSeconds": 5}),
                "tolerationSeconds",
                "NoExecute",
            ),
        ] {
            refused(&format!("tolerations[0].{field}"), rule, with(bad));
        }
    }
}
