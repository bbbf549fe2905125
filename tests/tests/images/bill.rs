//! The bills of materials beside the images.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Suite};
use serde_json::Value;

use crate::archive::{Archive, Error};
use crate::root;

pub fn add(suite: &mut Suite, image: &'static str) {
    suite.test(format!("{image}::bill_lists_what_is_in_it"), move || {
        for arch in ["amd64", "arm64"] {
            let bill = bill(image, arch)?;
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
        if image == "sandbox" {
            debian_versions()?;
        }
        Ok(())
    });
}

fn bill(image: &str, arch: &str) -> Result<Value, Error> {
    let path = root().join(format!("out/sbom/{image}-{arch}.cdx.json"));
    let text = fs::read_to_string(&path)
        .map_err(|error| format!("{}: {error}; `make images` writes it", path.display()))?;
    Ok(serde_json::from_str(&text)?)
}

/// Debian's packages in the bill are those of the image, version for version.
fn debian_versions() -> Outcome {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for image in Archive::read(&root().join("out/images/sandbox.tar"))?.images()? {
        let arch = image.platform.trim_start_matches("linux/");
        let bill = bill("sandbox", arch)?;
        let components = bill["components"].as_array().ok_or("no components")?;
        let listed: BTreeMap<_, _> = components
            .iter()
            .filter(|part| text(&part["purl"]).starts_with("pkg:deb/"))
            .map(|part| (text(&part["name"]), text(&part["version"])))
            .collect();
        let installed = installed(str::from_utf8(&image.file("/var/lib/dpkg/status")?.bytes)?);
        ensure!(installed.len() > 50, "only {installed:?}");
        ensure!(
            listed == installed,
            "{arch}: the bill lists {listed:?}, the image holds {installed:?}"
        );
    }
    Ok(())
}

/// Name and version of what dpkg has installed.
fn installed(status: &str) -> BTreeMap<String, String> {
    let package = |stanza: &str| {
        let fields: BTreeMap<_, _> = stanza
            .lines()
            .filter_map(|line| line.split_once(": "))
            .collect();
        let whole = fields.get("Status") == Some(&"install ok installed");
        let field = |key| fields.get(key).map(|value| (*value).to_owned());
        whole.then_some((field("Package")?, field("Version")?))
    };
    status.split("\n\n").filter_map(package).collect()
}
