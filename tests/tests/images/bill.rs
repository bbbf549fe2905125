//! The bills of materials beside the images.

use std::collections::BTreeSet;
use std::fs;

use podcradle_tests::ensure;
use podcradle_tests::harness::Suite;
use serde_json::Value;

use crate::root;

pub fn add(suite: &mut Suite, image: &'static str) {
    suite.test(format!("{image}::bill_lists_what_is_in_it"), move || {
        for arch in ["amd64", "arm64"] {
            let path = root().join(format!("out/sbom/{image}-{arch}.cdx.json"));
            let text = fs::read_to_string(&path)
                .map_err(|error| format!("{}: {error}; `make images` writes it", path.display()))?;
            let bill: Value = serde_json::from_str(&text)?;
            ensure!(bill["bomFormat"] == "CycloneDX", "{}", bill["bomFormat"]);
            let components = bill["components"].as_array().ok_or("no components")?;
            let names: BTreeSet<_> = components
                .iter()
                .filter_map(|part| part["name"].as_str())
                .collect();
            let expected: &[&str] = match image {
                "sandbox" => &[
                    "podcradle-init",
                    "podcradle-host",
                    "ureq",
                    "git",
                    "bash",
                    "ca-certificates",
                    "libc6",
                ],
                "supervisor" => &["podcradle-init", "libc"],
                _ => &["podcradle-launcher", "kube", "tokio", "rustls"],
            };
            let missing: Vec<_> = expected
                .iter()
                .filter(|name| !names.contains(*name))
                .collect();
            ensure!(missing.is_empty(), "{image}-{arch}: {missing:?} missing");
            ensure!(
                !names.contains("proptest"),
                "{image}-{arch} lists what only tests need"
            );
            let bare = components.iter().find(|part| {
                let ours = part["name"]
                    .as_str()
                    .is_some_and(|name| name.starts_with("podcradle-"));
                !ours && !part["purl"].is_string()
            });
            ensure!(bare.is_none(), "no package URL: {bare:?}");
            if image == "sandbox" {
                let right = format!("arch={arch}");
                let git = components.iter().find(|part| part["name"] == "git");
                let purl = git.and_then(|git| git["purl"].as_str()).unwrap_or_default();
                ensure!(
                    purl.starts_with("pkg:deb/debian/git@") && purl.ends_with(&right),
                    "{purl}"
                );
            }
        }
        Ok(())
    });
}
