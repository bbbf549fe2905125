//! Reads an OCI archive: index, manifests, configurations, layers.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Cursor, Read};
use std::path::Path;

use flate2::read::GzDecoder;
use serde_json::{Value, json};

/// Anything: a broken archive fails the test that reads it.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// An archive in memory.
pub struct Archive {
    blobs: BTreeMap<String, Vec<u8>>,
    /// The image's own index, which `index.json` names.
    pub index: Value,
    pub digest: String,
}

/// One platform of an image.
pub struct Image {
    pub platform: String,
    pub manifest: Value,
    pub config: Value,
    /// Compressed, as a registry stores it.
    pub size: u64,
    pub files: Vec<Entry>,
}

/// One entry of a layer.
pub struct Entry {
    /// Absolute.
    pub path: String,
    pub mode: u32,
    pub uid: u64,
    pub modified: u64,
    pub kind: tar::EntryType,
    /// Empty unless it is a file that some test looks into.
    pub bytes: Vec<u8>,
}

/// More than this of a file nobody looks at.
const KEPT: u64 = 32 << 20;

impl Archive {
    pub fn read(path: &Path) -> Result<Self, Error> {
        let file = File::open(path)
            .map_err(|error| format!("{}: {error}; `make images` bakes it", path.display()))?;
        let mut blobs = BTreeMap::new();
        for entry in tar::Archive::new(file).entries()? {
            let mut entry = entry?;
            let name = entry.path()?.to_string_lossy().into_owned();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes)?;
            blobs.insert(name, bytes);
        }
        let layout: Value =
            serde_json::from_slice(blobs.get("index.json").ok_or("no index.json")?)?;
        let digest = layout["manifests"][0]["digest"]
            .as_str()
            .ok_or("no digest")?
            .to_owned();
        let mut archive = Archive {
            blobs,
            index: Value::Null,
            digest,
        };
        archive.index = archive.json(&archive.digest)?;
        Ok(archive)
    }

    fn blob(&self, digest: &str) -> Result<&[u8], Error> {
        let name = format!("blobs/{}", digest.replace(':', "/"));
        Ok(self
            .blobs
            .get(&name)
            .ok_or_else(|| format!("no blob {name}"))?)
    }

    fn json(&self, digest: &str) -> Result<Value, Error> {
        Ok(serde_json::from_slice(self.blob(digest)?)?)
    }

    /// Every platform in the index.
    pub fn images(&self) -> Result<Vec<Image>, Error> {
        let manifests = self.index["manifests"]
            .as_array()
            .ok_or("no manifests in the index")?;
        manifests
            .iter()
            .map(|descriptor| self.image(descriptor))
            .collect()
    }

    fn image(&self, descriptor: &Value) -> Result<Image, Error> {
        let text = |value: &Value| value.as_str().map(str::to_owned).ok_or("not a string");
        let platform = &descriptor["platform"];
        let manifest = self.json(&text(&descriptor["digest"])?)?;
        let mut files = Vec::new();
        let mut size = 0;
        for layer in manifest["layers"].as_array().ok_or("no layers")? {
            size += layer["size"].as_u64().ok_or("a layer without a size")?;
            files.extend(entries(self.blob(&text(&layer["digest"])?)?)?);
        }
        Ok(Image {
            platform: format!(
                "{}/{}",
                text(&platform["os"])?,
                text(&platform["architecture"])?
            ),
            config: self.json(&text(&manifest["config"]["digest"])?)?,
            manifest,
            size,
            files,
        })
    }
}

impl Archive {
    /// Writes one platform the way every docker reads it, old ones too.
    pub fn write_for_docker(&self, platform: &str, tag: &str, to: &Path) -> Result<(), Error> {
        let name = |digest: &Value| {
            let digest = digest.as_str().unwrap_or_default();
            format!("blobs/{}", digest.replace(':', "/"))
        };
        let mut manifests = self.index["manifests"].as_array().into_iter().flatten();
        let wanted = |one: &&Value| {
            let Value::String(os) = &one["platform"]["os"] else {
                return false;
            };
            let Value::String(arch) = &one["platform"]["architecture"] else {
                return false;
            };
            format!("{os}/{arch}") == platform
        };
        let descriptor = manifests
            .find(wanted)
            .ok_or_else(|| format!("no {platform}"))?;
        let manifest = self.json(descriptor["digest"].as_str().unwrap_or_default())?;
        let config = name(&manifest["config"]["digest"]);
        let layers = manifest["layers"].as_array().into_iter().flatten();
        let layers: Vec<_> = layers.map(|layer| name(&layer["digest"])).collect();
        let list = json!([{ "Config": config, "RepoTags": [tag], "Layers": layers }]).to_string();

        let blob = |name: &String| {
            let bytes = self
                .blobs
                .get(name)
                .ok_or_else(|| format!("no blob {name}"))?;
            Ok::<_, Error>((name.clone(), bytes.as_slice()))
        };
        let blobs: Vec<_> = layers
            .iter()
            .chain([&config])
            .map(blob)
            .collect::<Result<_, _>>()?;
        let blobs = blobs.iter().map(|(name, bytes)| (name.as_str(), *bytes));
        write_tar(
            to,
            [("manifest.json", list.as_bytes())]
                .into_iter()
                .chain(blobs),
        )
    }
}

/// Writes files into an archive.
pub fn write_tar<'a>(
    to: &Path,
    files: impl Iterator<Item = (&'a str, &'a [u8])>,
) -> Result<(), Error> {
    let mut tar = tar::Builder::new(File::create(to)?);
    for (name, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, bytes)?;
    }
    Ok(tar.finish()?)
}

fn entries(layer: &[u8]) -> Result<Vec<Entry>, Error> {
    let mut found = Vec::new();
    for entry in tar::Archive::new(GzDecoder::new(Cursor::new(layer))).entries()? {
        let mut entry = entry?;
        let mut bytes = Vec::new();
        let header = entry.header();
        let kept = header.entry_type().is_file() && entry.size() <= KEPT;
        let facts = (
            header.mode()?,
            header.uid()?,
            header.mtime()?,
            header.entry_type(),
        );
        if kept {
            entry.read_to_end(&mut bytes)?;
        }
        let (mode, uid, modified, kind) = facts;
        let path = format!("/{}", entry.path()?.to_string_lossy().trim_end_matches('/'));
        found.push(Entry {
            path,
            mode,
            uid,
            modified,
            kind,
            bytes,
        });
    }
    Ok(found)
}

impl Image {
    /// The file at an absolute path; the last layer wins.
    pub fn file(&self, path: &str) -> Result<&Entry, Error> {
        let found = self.files.iter().rev().find(|entry| entry.path == path);
        Ok(found.ok_or_else(|| format!("{}: no {path}", self.platform))?)
    }
}
