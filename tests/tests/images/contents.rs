//! What an archive holds, image by image.

use std::sync::{Arc, OnceLock};

use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Suite};
use serde_json::{Value, json};

use crate::archive::{Archive, Error, Image};
use crate::root;

const PLATFORMS: [&str; 2] = ["linux/amd64", "linux/arm64"];
const OURS: &str = "org.opencontainers.image";

/// An archive and all its platforms.
struct Unpacked {
    archive: Archive,
    images: Vec<Image>,
}

impl Unpacked {
    fn read(image: &str) -> Result<Self, Error> {
        let archive = Archive::read(&root().join(format!("out/images/{image}.tar")))?;
        let images = archive.images()?;
        Ok(Unpacked { archive, images })
    }
}

type Test = fn(&'static str, &Archive, &[Image]) -> Outcome;

pub fn add(suite: &mut Suite, image: &'static str, limit: Option<u64>) {
    let tests: [(&str, Test); 8] = [
        (
            "index_holds_both_platforms_and_nothing_else",
            both_platforms,
        ),
        ("labels_and_annotations_say_what_it_is", labels),
        ("no_time_is_later_than_the_commit", times),
        ("no_file_is_setuid_or_a_device", modes),
        ("history_holds_no_secret_and_no_cache", history),
        ("user_is_not_root_and_entrypoint_is_ours", configuration),
        ("programs_are_static_and_of_their_architecture", programs),
        match image {
            "sandbox" => ("holds_what_a_host_needs", sandbox),
            _ => ("holds_one_file", one_file),
        },
    ];
    // Unpacked once, by whichever test comes first.
    let unpacked: Arc<OnceLock<Result<Unpacked, String>>> = Arc::default();
    for (name, body) in tests {
        let unpacked = unpacked.clone();
        suite.test(format!("{image}::{name}"), move || {
            let read = || Unpacked::read(image).map_err(|error| error.to_string());
            let Unpacked { archive, images } = unpacked.get_or_init(read).as_ref()?;
            body(image, archive, images)
        });
    }
    let Some(limit) = limit else { return };
    suite.test(
        format!("{image}::size_is_at_most_{limit}_bytes"),
        move || {
            for image in Unpacked::read(image)?.images {
                let Image { platform, size, .. } = image;
                ensure!(size <= limit, "{platform}: {size} bytes, owed {limit}");
            }
            Ok(())
        },
    );
}

fn one_file(_: &'static str, _: &Archive, images: &[Image]) -> Outcome {
    for image in images {
        let files: Vec<_> = image
            .files
            .iter()
            .map(|entry| entry.path.as_str())
            .collect();
        ensure!(files.len() == 1, "{}: {files:?}", image.platform);
    }
    Ok(())
}

/// The index is an OCI one, of both platforms and nothing else.
pub fn both_platforms(_: &'static str, archive: &Archive, images: &[Image]) -> Outcome {
    let found: Vec<_> = images.iter().map(|image| image.platform.as_str()).collect();
    ensure!(found == PLATFORMS, "{found:?}");
    let kind = &archive.index["mediaType"];
    ensure!(kind == "application/vnd.oci.image.index.v1+json", "{kind}");
    Ok(())
}

fn labels(name: &'static str, archive: &Archive, images: &[Image]) -> Outcome {
    for image in images {
        let labels = &image.config["config"]["Labels"];
        for (key, right) in [
            ("title", format!("podcradle-{name}")),
            ("licenses", "Apache-2.0".to_owned()),
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ] {
            let found = &labels[format!("{OURS}.{key}")];
            ensure!(
                *found == right,
                "{}: {key} is {found}, not {right}",
                image.platform
            );
        }
        for key in ["description", "revision", "created"] {
            let found = &labels[format!("{OURS}.{key}")];
            ensure!(
                found.as_str().is_some_and(|text| text.len() > 7),
                "{key} is {found}"
            );
        }
        for (whose, notes) in [("index", &archive.index), ("manifest", &image.manifest)] {
            let notes = &notes["annotations"];
            ensure!(
                notes == labels,
                "{whose}: annotations {notes} are not the labels {labels}"
            );
        }
    }
    Ok(())
}

/// The moment that `created` names, in seconds since 1970.
fn created(image: &Image) -> Result<u64, Error> {
    let text = image.config["created"].as_str().ok_or("no created")?;
    let moment: k8s_openapi::jiff::Timestamp = text.parse()?;
    Ok(moment.as_second().try_into()?)
}

fn times(_: &'static str, _: &Archive, images: &[Image]) -> Outcome {
    for image in images {
        let epoch = created(image)?;
        let label = &image.config["config"]["Labels"][format!("{OURS}.created")];
        ensure!(*label == image.config["created"], "label {label}");
        for step in image.config["history"].as_array().into_iter().flatten() {
            ensure!(step["created"] == image.config["created"], "{step}");
        }
        for file in &image.files {
            ensure!(
                file.modified <= epoch,
                "{}: {} > {epoch}",
                file.path,
                file.modified
            );
        }
    }
    Ok(())
}

fn modes(_: &'static str, _: &Archive, images: &[Image]) -> Outcome {
    for image in images {
        for file in image.files.iter().filter(|file| !file.kind.is_dir()) {
            ensure!(
                file.mode & 0o6000 == 0,
                "{}: mode {:o}",
                file.path,
                file.mode
            );
            ensure!(
                !file.kind.is_block_special() && !file.kind.is_character_special(),
                "{}",
                file.path
            );
            let writable = file.mode & 0o002 != 0 && !file.kind.is_symlink();
            ensure!(
                !writable,
                "{}: anyone may write it ({:o})",
                file.path,
                file.mode
            );
        }
    }
    Ok(())
}

fn history(_: &'static str, _: &Archive, images: &[Image]) -> Outcome {
    for image in images {
        let text = image.config["history"].to_string().to_lowercase();
        for word in ["token", "password", "secret", "apt-get", "credential"] {
            ensure!(!text.contains(word), "{word} in {text}");
        }
        let leftover = image.files.iter().find(|file| {
            let folders = [
                "/var/lib/apt/lists/",
                "/var/cache/apt/",
                "/root/.",
                "/tmp/",
                "/var/log/",
            ];
            let skeleton = ["/root/.bashrc", "/root/.profile"];
            folders.iter().any(|folder| file.path.starts_with(folder))
                && !skeleton.contains(&file.path.as_str())
        });
        ensure!(leftover.is_none(), "{:?}", leftover.map(|file| &file.path));
    }
    Ok(())
}

fn configuration(name: &'static str, _: &Archive, images: &[Image]) -> Outcome {
    let (user, entrypoint, command) = match name {
        "sandbox" => (
            "1000660000:1000660000",
            json!(["/usr/local/bin/podcradle-init", "--"]),
            json!(["host"]),
        ),
        "supervisor" => ("65532:65532", json!(["/podcradle-init"]), Value::Null),
        _ => ("65532:65532", json!(["/podcradle"]), Value::Null),
    };
    for image in images {
        let config = &image.config["config"];
        ensure!(config["User"] == user, "user {}", config["User"]);
        ensure!(
            config["Entrypoint"] == entrypoint,
            "entrypoint {}",
            config["Entrypoint"]
        );
        ensure!(config["Cmd"] == command, "command {}", config["Cmd"]);
    }
    Ok(())
}

/// ELF: class and byte order at 4 and 5, machine at 18; a program that needs a
/// loader names one in a segment of type 3.
fn programs(name: &'static str, _: &Archive, images: &[Image]) -> Outcome {
    let programs: &[&str] = match name {
        "sandbox" => &["/usr/local/bin/podcradle-init", "/usr/local/bin/host"],
        "supervisor" => &["/podcradle-init"],
        _ => &["/podcradle"],
    };
    for image in images {
        let machine = if image.platform == "linux/amd64" {
            62
        } else {
            183
        };
        for path in programs {
            let file = image.file(path)?;
            ensure!(file.mode & 0o7777 == 0o555, "{path}: mode {:o}", file.mode);
            let bytes = &file.bytes;
            ensure!(
                bytes.starts_with(b"\x7fELF\x02\x01"),
                "{path} is no ELF program of 64 bits"
            );
            let number = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
            ensure!(
                number(18) == machine,
                "{path}: machine {}, not {machine}",
                number(18)
            );
            let table = usize::try_from(u64::from_le_bytes(bytes[32..40].try_into()?))?;
            let (size, count) = (usize::from(number(54)), usize::from(number(56)));
            let loader = (0..count).any(|n| number(table + n * size) == 3);
            ensure!(!loader, "{path} is linked dynamically");
            // Where the build machine keeps the sources of crates.
            let folder = String::from_utf8_lossy(bytes).contains("/registry/src/");
            ensure!(!folder, "{path} names a folder of its build machine");
        }
    }
    Ok(())
}

fn sandbox(_: &'static str, _: &Archive, images: &[Image]) -> Outcome {
    for image in images {
        let text = |path| Ok::<_, Error>(String::from_utf8(image.file(path)?.bytes.clone())?);
        for (file, line) in [
            (
                "/etc/passwd",
                "sandbox:x:1000660000:1000660000:sandbox:/home/sandbox:/bin/bash",
            ),
            ("/etc/group", "sandbox:x:1000660000:"),
            ("/etc/gitconfig", "\thelper = environment"),
        ] {
            let found = text(file)?;
            ensure!(
                found.lines().any(|known| known == line),
                "{file} has no line {line:?}:\n{found}"
            );
        }
        for path in [
            "/usr/bin/bash",
            "/usr/bin/git",
            "/etc/ssl/certs/ca-certificates.crt",
        ] {
            image.file(path)?;
        }
        let home = image.file("/home/sandbox")?;
        ensure!(
            home.uid == 1_000_660_000,
            "/home/sandbox belongs to {}",
            home.uid
        );
        // The list that scanners read.
        image.file("/var/lib/dpkg/status")?;
    }
    Ok(())
}
