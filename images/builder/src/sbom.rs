//! Bills of materials, one `CycloneDX` document an image and architecture, in
//! `out/sbom`: the crates that are linked into its programs (as cargo resolves
//! them for that target, with the checksums of `Cargo.lock`) and, for the
//! sandbox, what dpkg lists in the image itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::json;
use thiserror::Error;

use crate::arch::Arch;
use crate::bake::{self, BakeError, Base};
use crate::commit::{Commit, CommitError};
use crate::process::{ProcessError, output};
use crate::stage::{IMAGES, PROGRAMS, Program};

/// What the bills are made from.
#[derive(Debug, Args)]
pub struct Options {
    /// The Debian under the sandbox, as given to bake
    #[arg(long, value_enum, default_value_t = Base::Registry)]
    base: Base,
}

/// Why there is no bill.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SbomError {
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error(transparent)]
    Commit(#[from] CommitError),
    #[error(transparent)]
    Bake(#[from] BakeError),
    #[error("Cargo.lock cannot be understood")]
    Lock(#[from] toml::de::Error),
    #[error("{path}")]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
}

/// One thing an image is made of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Component {
    #[serde(rename = "type")]
    kind: &'static str,
    name: String,
    version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    purl: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    licenses: Vec<License>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hashes: Vec<Hash>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct License {
    expression: String,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Hash {
    alg: &'static str,
    content: String,
}

/// Writes `out/sbom/<image>-<arch>.cdx.json` for all images.
pub fn write(root: &Path, options: &Options) -> Result<(), SbomError> {
    bake::packages(root, options.base)?;
    let commit = Commit::of(root)?;
    let lock = root.join("Cargo.lock");
    let checksums = checksums(&fs::read_to_string(&lock).map_err(at(&lock))?)?;
    let out = root.join("out/sbom");
    fs::create_dir_all(&out).map_err(at(&out))?;
    for arch in Arch::ALL {
        for image in IMAGES {
            let mut components = BTreeSet::new();
            for program in PROGRAMS
                .iter()
                .filter(|program| program.images.contains(&image))
            {
                components.extend(crates(root, program, arch, &checksums)?);
            }
            if image == "sandbox" {
                let status = root.join(format!("out/packages/linux_{}/status", arch.name()));
                let text = fs::read_to_string(&status).map_err(at(&status))?;
                components.extend(debian_packages(&text));
            }
            let path = out.join(format!("{image}-{}.cdx.json", arch.name()));
            let bill = bill(image, &commit, &components);
            fs::write(&path, format!("{bill:#}\n")).map_err(at(&path))?;
        }
    }
    Ok(())
}

fn bill(image: &str, commit: &Commit, components: &BTreeSet<Component>) -> serde_json::Value {
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "container",
                "name": format!("podcradle-{image}"),
                "version": env!("CARGO_PKG_VERSION"),
                "properties": [{ "name": "podcradle:revision", "value": commit.revision }],
            },
        },
        "components": components,
    })
}

#[derive(Deserialize)]
struct Lock {
    package: Vec<Locked>,
}

#[derive(Deserialize)]
struct Locked {
    name: String,
    version: String,
    checksum: Option<String>,
}

/// The checksum of every crate that has one, by name and version.
fn checksums(lock: &str) -> Result<BTreeMap<(String, String), String>, toml::de::Error> {
    let lock: Lock = toml::from_str(lock)?;
    let entry = |locked: Locked| Some(((locked.name, locked.version), locked.checksum?));
    Ok(lock.package.into_iter().filter_map(entry).collect())
}

/// What is linked into a program: no build scripts, no macros, no tests.
fn crates(
    root: &Path,
    program: &Program,
    arch: Arch,
    checksums: &BTreeMap<(String, String), String>,
) -> Result<Vec<Component>, SbomError> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let tree = output(
        Command::new(cargo)
            .current_dir(root)
            .args([
                "tree",
                "--locked",
                "--package",
                program.package,
                "--target",
                &arch.target(),
            ])
            .args([
                "--edges",
                "normal,no-proc-macro",
                "--prefix",
                "none",
                "--format",
                "{p}\t{l}",
            ]),
    )?;
    Ok(tree
        .lines()
        .filter_map(|line| crate_of(line, checksums))
        .collect())
}

/// `name v1.2.3[ (where)]<TAB>licence[ (*)]` as cargo tree prints it.
fn crate_of(line: &str, checksums: &BTreeMap<(String, String), String>) -> Option<Component> {
    let (package, license) = line.split_once('\t')?;
    let mut words = package.split(' ');
    let name = words.next()?.to_owned();
    let version = words.next()?.strip_prefix('v')?.to_owned();
    let license = license.trim_end_matches("(*)").trim();
    let checksum = checksums.get(&(name.clone(), version.clone()));
    Some(Component {
        kind: "library",
        // Ours have no checksum, and are in no registry.
        purl: checksum.map(|_| format!("pkg:cargo/{name}@{}", escape(&version))),
        hashes: checksum
            .map(|sum| Hash {
                alg: "SHA-256",
                content: sum.clone(),
            })
            .into_iter()
            .collect(),
        // Older crates write "MIT/Apache-2.0" where SPDX says OR.
        licenses: match license {
            "" => Vec::new(),
            text => vec![License {
                expression: text.replace('/', " OR "),
            }],
        },
        name,
        version,
    })
}

/// The installed packages of a dpkg status file.
fn debian_packages(status: &str) -> Vec<Component> {
    let stanza = |text: &str| {
        let field = |name| {
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
        };
        let (name, version) = (field("Package")?, field("Version")?);
        let installed = field("Status")?.ends_with(" installed");
        let purl = format!(
            "pkg:deb/debian/{}@{}?arch={}",
            escape(name),
            escape(version),
            field("Architecture")?
        );
        installed.then(|| Component {
            kind: "library",
            name: name.to_owned(),
            version: version.to_owned(),
            purl: Some(purl),
            licenses: Vec::new(),
            hashes: Vec::new(),
        })
    };
    status.split("\n\n").filter_map(stanza).collect()
}

/// Percent-encoding as package URLs want it.
fn escape(text: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b".-_~".contains(byte);
    text.bytes().fold(String::new(), |out, byte| {
        if plain(&byte) {
            out + char::from(byte).encode_utf8(&mut [0; 4])
        } else {
            format!("{out}%{byte:02X}")
        }
    })
}

fn at(path: &Path) -> impl FnOnce(std::io::Error) -> SbomError {
    let path = path.to_owned();
    move |source| SbomError::File { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_installed_packages_are_listed() {
        let status = "Package: git\nStatus: install ok installed\nArchitecture: arm64\nVersion: 1:2.47.3-0+deb13u1\n\n\
                      Package: old\nStatus: deinstall ok config-files\nArchitecture: all\nVersion: 1\n";
        let found = debian_packages(status);
        assert_eq!(found.len(), 1);
        let purl = "pkg:deb/debian/git@1%3A2.47.3-0%2Bdeb13u1?arch=arm64";
        assert_eq!(found[0].purl.as_deref(), Some(purl));
    }

    #[test]
    fn a_line_of_cargo_tree_becomes_a_component() {
        let lock = "[[package]]\nname = \"a-b\"\nversion = \"1.0.0+x\"\nchecksum = \"00ff\"\n";
        let checksums = checksums(lock).unwrap();
        let found = crate_of("a-b v1.0.0+x\tMIT/Apache-2.0 (*)", &checksums).unwrap();
        assert_eq!(found.purl.as_deref(), Some("pkg:cargo/a-b@1.0.0%2Bx"));
        assert_eq!(found.licenses[0].expression, "MIT OR Apache-2.0");
        assert_eq!(found.hashes[0].content, "00ff");
    }

    #[test]
    fn a_crate_of_ours_has_no_address() {
        let found = crate_of("podcradle-init v0.1.0 (/src)\tApache-2.0", &BTreeMap::new()).unwrap();
        assert_eq!((found.purl, found.hashes.len()), (None, 0));
    }
}
