//! An image as a folder and as one file, in the layout of the Open Container Initiative, with its parts list beside it.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde_json::{Map, Value, json};
use tar::{Builder, EntryType, Header};

use crate::blob::{Blobs, Descriptor, Layer};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Kind of the parts list that hangs on an image.
pub(crate) const PARTS_LIST: &str = "application/vnd.cyclonedx+json";

/// How an image is run.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    /// User and group, as numbers.
    pub(crate) user: &'static str,
    pub(crate) entrypoint: &'static [&'static str],
    pub(crate) command: &'static [&'static str],
    /// Variables, `NAME=value`.
    pub(crate) environment: &'static [&'static str],
    pub(crate) ports: &'static [u16],
    pub(crate) folder: &'static str,
}

/// An image that is to be written.
#[derive(Debug)]
pub(crate) struct Image<'i> {
    /// Whole name, with registry and tag.
    pub(crate) name: &'i str,
    pub(crate) tag: &'i str,
    /// Processor, as images name it.
    pub(crate) architecture: &'static str,
    /// Time of the source, as in RFC 3339.
    pub(crate) created: &'i str,
    /// Labels, which are the annotations of the manifest too.
    pub(crate) labels: &'i Map<String, Value>,
    pub(crate) settings: &'i Settings,
}

impl Image<'_> {
    fn config(&self, layers: &[Layer]) -> Value {
        let Settings { user, entrypoint, command, environment, ports, folder } = self.settings;
        let ports: Map<_, _> = ports.iter().map(|port| (format!("{port}/tcp"), json!({}))).collect();
        let history = layers.iter().map(|_| json!({ "created": self.created, "created_by": "cargo xtask image" }));
        json!({
            "architecture": self.architecture,
            "os": "linux",
            "created": self.created,
            "config": {
                "User": user, "Env": environment, "WorkingDir": folder, "Labels": self.labels, "Cmd": command,
                "Entrypoint": entrypoint, "ExposedPorts": ports,
            },
            "rootfs": { "type": "layers", "diff_ids": layers.iter().map(|layer| &layer.diff_id).collect::<Vec<_>>() },
            "history": history.collect::<Vec<_>>(),
        })
    }

    /// Writes manifests and index of a layout whose layers are there, and returns the digest of the image.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn finish(&self, layout: &Path, layers: &[Layer], parts_list: &[u8]) -> io::Result<String> {
        let folder = layout.join("blobs/sha256");
        let blobs = Blobs(&folder);
        let config = blobs.json("application/vnd.oci.image.config.v1+json", &self.config(layers))?;
        let layers: Vec<&Descriptor> = layers.iter().map(|layer| &layer.descriptor).collect();
        let manifest = blobs.json(
            MANIFEST,
            &json!({
                "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers,
                "annotations": self.labels,
            }),
        )?;
        let referrer = self.referrer(&blobs, &manifest, parts_list)?;
        let named = json!({
            "mediaType": manifest.media_type, "digest": manifest.digest, "size": manifest.size,
            "platform": { "architecture": self.architecture, "os": "linux" },
            "annotations": { "io.containerd.image.name": self.name, "org.opencontainers.image.ref.name": self.tag },
        });
        let index = json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [named, referrer],
        });
        fs::write(layout.join("index.json"), index.to_string())?;
        fs::write(layout.join("oci-layout"), json!({ "imageLayoutVersion": "1.0.0" }).to_string())?;
        Ok(manifest.digest)
    }

    /// Adds the parts list, as an artifact that refers to the image.
    fn referrer(&self, blobs: &Blobs<'_>, manifest: &Descriptor, parts_list: &[u8]) -> io::Result<Value> {
        let list = blobs.bytes(PARTS_LIST, parts_list)?;
        let empty = blobs.bytes("application/vnd.oci.empty.v1+json", b"{}")?;
        let referrer = blobs.json(
            MANIFEST,
            &json!({
                "schemaVersion": 2, "mediaType": MANIFEST, "artifactType": PARTS_LIST,
                "config": empty, "layers": [list], "subject": manifest,
                "annotations": { "org.opencontainers.image.created": self.created },
            }),
        )?;
        Ok(json!({
            "mediaType": referrer.media_type, "digest": referrer.digest, "size": referrer.size,
            "artifactType": PARTS_LIST,
        }))
    }
}

/// Writes the image of a layout as one file, for whatever loads images: an index that names the image alone, since skopeo and podman take
/// the only one that there is, and the list that Docker reads. What refers to the image is in the layout.
///
/// # Errors
/// The system's, and of a layout that is none.
pub(crate) fn archive(layout: &Path, to: &Path, name: &str) -> io::Result<()> {
    let mut index: Value = serde_json::from_slice(&fs::read(layout.join("index.json"))?)?;
    let image = index.pointer("/manifests/0").cloned().unwrap_or_default();
    let manifest_blob = blob(&image)?;
    let manifest: Value = serde_json::from_slice(&fs::read(layout.join(&manifest_blob))?)?;
    let config = blob(manifest.get("config").unwrap_or(&Value::Null))?;
    let layers = manifest.get("layers").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let layers: Vec<String> = layers.iter().map(blob).collect::<io::Result<_>>()?;
    if let Some(manifests) = index.pointer_mut("/manifests") {
        *manifests = json!([image]);
    }
    let docker = json!([{ "Config": config, "RepoTags": [name], "Layers": layers }]);

    let mut builder = Builder::new(BufWriter::new(File::create(to)?));
    for folder in ["blobs/", "blobs/sha256/"] {
        let mut header = header(EntryType::Directory, 0o755);
        builder.append_data(&mut header, folder, io::empty())?;
    }
    let mut blobs: Vec<String> = layers.into_iter().chain([manifest_blob, config]).collect();
    blobs.sort();
    blobs.dedup();
    for name in ["oci-layout".to_owned()].into_iter().chain(blobs) {
        let file = File::open(layout.join(&name))?;
        let mut header = header(EntryType::Regular, 0o644);
        header.set_size(file.metadata()?.len());
        builder.append_data(&mut header, name, file)?;
    }
    for (name, text) in [("index.json", index.to_string()), ("manifest.json", docker.to_string())] {
        let mut header = header(EntryType::Regular, 0o644);
        header.set_size(u64::try_from(text.len()).map_err(io::Error::other)?);
        builder.append_data(&mut header, name, text.as_bytes())?;
    }
    builder.into_inner()?.flush()
}

/// Returns the file of what a descriptor names, in its layout.
fn blob(descriptor: &Value) -> io::Result<String> {
    let digest = descriptor.get("digest").and_then(Value::as_str).and_then(|digest| digest.strip_prefix("sha256:"));
    digest.map(|sum| format!("blobs/sha256/{sum}")).ok_or_else(|| io::Error::other("a descriptor has no digest"))
}

fn header(kind: EntryType, mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(0);
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blob::Sum;
    use crate::tree::{TEXT, Tree};

    fn read(layout: &Path, descriptor: &Value) -> Vec<u8> {
        let digest = descriptor["digest"].as_str().unwrap();
        let bytes = fs::read(layout.join("blobs").join(digest.replace(':', "/"))).unwrap();
        assert_eq!(Sum::of(&bytes).digest(), digest);
        assert_eq!(descriptor["size"], bytes.len());
        bytes
    }

    fn parsed(layout: &Path, descriptor: &Value) -> Value {
        serde_json::from_slice(&read(layout, descriptor)).unwrap()
    }

    fn write(layout: &Path) -> String {
        let folder = layout.join("blobs/sha256");
        fs::create_dir_all(&folder).unwrap();
        let mut tree = Tree::default();
        tree.text("etc/passwd", TEXT, "root:x:0:0::/:\n");
        let layer = Blobs(&folder).layer(&tree, 1, true).unwrap();
        let labels = [("org.opencontainers.image.version".to_owned(), json!("1.2.3"))].into_iter().collect();
        let settings = Settings { user: "5:6", command: &["run"], ports: &[80], ..Settings::default() };
        let image = Image {
            name: "localhost/a:1.2.3",
            tag: "1.2.3",
            architecture: "amd64",
            created: "1970-01-01T00:00:01Z",
            labels: &labels,
            settings: &settings,
        };
        image.finish(layout, &[layer], b"{\"parts\":[]}").unwrap()
    }

    #[test]
    fn everything_is_found_from_the_index() {
        let folder = tempfile::tempdir().unwrap();
        let digest = write(folder.path());
        let index: Value = serde_json::from_slice(&fs::read(folder.path().join("index.json")).unwrap()).unwrap();
        let [image, referrer] = index["manifests"].as_array().unwrap().as_slice() else { panic!("{index}") };
        assert_eq!(image["digest"], digest);
        assert_eq!(image["annotations"]["io.containerd.image.name"], "localhost/a:1.2.3");
        let manifest = parsed(folder.path(), image);
        let config = parsed(folder.path(), &manifest["config"]);
        assert_eq!(config["config"]["User"], "5:6");
        assert_eq!(config["config"]["ExposedPorts"], json!({ "80/tcp": {} }));
        assert_eq!(config["config"]["Labels"], manifest["annotations"]);
        assert_eq!(config["rootfs"]["diff_ids"].as_array().unwrap().len(), 1);
        read(folder.path(), &manifest["layers"][0]);
        let artifact = parsed(folder.path(), referrer);
        assert_eq!(artifact["subject"]["digest"], digest);
        assert_eq!(artifact["artifactType"], PARTS_LIST);
        assert_eq!(parsed(folder.path(), &artifact["layers"][0]), json!({ "parts": [] }));
        assert_eq!(parsed(folder.path(), &artifact["config"]), json!({}));
    }

    #[test]
    fn two_writes_are_the_same_file() {
        let write = || {
            let folder = tempfile::tempdir().unwrap();
            write(&folder.path().join("a"));
            archive(&folder.path().join("a"), &folder.path().join("a.tar"), "localhost/a:1.2.3").unwrap();
            fs::read(folder.path().join("a.tar")).unwrap()
        };
        assert_eq!(write(), write());
    }

    #[test]
    fn file_has_one_image_for_each_kind_of_reader() {
        let folder = tempfile::tempdir().unwrap();
        let digest = write(folder.path());
        let file = folder.path().join("a.tar");
        archive(folder.path(), &file, "localhost/a:1.2.3").unwrap();
        let mut files = std::collections::BTreeMap::new();
        for entry in tar::Archive::new(File::open(&file).unwrap()).entries().unwrap() {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().display().to_string();
            let mut bytes = Vec::new();
            io::Read::read_to_end(&mut entry, &mut bytes).unwrap();
            files.insert(name, bytes);
        }
        let json = |name: &str| -> Value { serde_json::from_slice(&files[name]).unwrap() };
        let index = json("index.json");
        assert_eq!(index["manifests"].as_array().unwrap().len(), 1);
        assert_eq!(index["manifests"][0]["digest"], digest);
        let [docker] = json("manifest.json").as_array().unwrap().clone().try_into().unwrap();
        assert_eq!(docker["RepoTags"], json!(["localhost/a:1.2.3"]));
        let config: Value = json(docker["Config"].as_str().unwrap());
        assert_eq!(config["config"]["User"], "5:6");
        assert!(files.contains_key(docker["Layers"][0].as_str().unwrap()));
        assert_eq!(files.keys().filter(|name| name.starts_with("blobs/sha256/") && name.len() > 20).count(), 3);
    }
}
