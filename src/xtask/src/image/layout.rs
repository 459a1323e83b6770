//! Files to layers, layers to an OCI image layout in one tar, which `ctr images import` and `podman load` read.
//!
//! Nothing in it depends on when or where it was made: times are 0, owners are root, entries are sorted.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs::File as DiskFile;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

use super::files::File;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// An image to be written.
pub(crate) struct Image {
    /// Repository and tag.
    pub(crate) name: String,
    /// The program's path in the image.
    pub(crate) entrypoint: String,
    /// User and group that it runs as.
    pub(crate) user: &'static str,
    /// Tars, lowest first.
    pub(crate) layers: Vec<Vec<u8>>,
}

/// A tar of these files and the folders above them.
pub(super) fn layer(files: &[File]) -> Result<Vec<u8>> {
    let mut tar = Builder::new(Vec::new());
    for folder in folders(files) {
        append(&mut tar, EntryType::Directory, &format!("{folder}/"), 0o755, &[])?;
    }
    for file in files {
        append(&mut tar, EntryType::Regular, &file.path, file.mode, &file.bytes)?;
    }
    tar.into_inner().context("end a layer")
}

/// Every folder above the files, a folder before what it holds.
fn folders(files: &[File]) -> BTreeSet<String> {
    let above = |file: &File| -> Vec<String> {
        file.path.match_indices('/').map(|(end, _)| file.path[..end].to_owned()).collect()
    };
    files.iter().flat_map(above).collect()
}

pub(crate) fn append(
    tar: &mut Builder<impl Write>,
    kind: EntryType,
    path: &str,
    mode: u32,
    bytes: &[u8],
) -> Result<()> {
    let mut header = header(kind, mode);
    header.set_size(bytes.len().try_into()?);
    tar.append_data(&mut header, path, bytes).with_context(|| format!("add {path}"))
}

/// Times and owners are 0, so that the same content gives the same image.
pub(crate) fn header(kind: EntryType, mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(0);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

impl Image {
    /// Writes the tar, and gives the digest of the image's manifest.
    pub(crate) fn write(&self, path: &Path) -> Result<String> {
        let wrong = || format!("write {}", path.display());
        let mut file = BufWriter::new(DiskFile::create(path).with_context(wrong)?);
        let (tar, digest) = self.archive()?;
        file.write_all(&tar).and_then(|()| file.flush()).with_context(wrong)?;
        Ok(digest)
    }

    fn archive(&self) -> Result<(Vec<u8>, String)> {
        let mut blobs = BTreeMap::new();
        let config = json_blob(&mut blobs, CONFIG, &self.config())?;
        let layers: Vec<_> = self.layers.iter().map(|layer| blob(&mut blobs, LAYER, layer.clone())).collect();
        let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers});
        let mut manifest = json_blob(&mut blobs, MANIFEST, &manifest)?;
        let digest = manifest["digest"].as_str().unwrap_or_default().to_owned();
        let tag = self.name.rsplit(':').next().unwrap_or_default();
        manifest["annotations"] =
            json!({"io.containerd.image.name": self.name, "org.opencontainers.image.ref.name": tag});
        manifest["platform"] = json!({"architecture": architecture(), "os": "linux"});
        let index = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [manifest],
        });
        let mut tar = Builder::new(Vec::new());
        for folder in ["blobs/", "blobs/sha256/"] {
            append(&mut tar, EntryType::Directory, folder, 0o755, &[])?;
        }
        for (hash, bytes) in &blobs {
            append(&mut tar, EntryType::Regular, &format!("blobs/sha256/{hash}"), 0o644, bytes)?;
        }
        append(&mut tar, EntryType::Regular, "index.json", 0o644, &serde_json::to_vec(&index)?)?;
        append(&mut tar, EntryType::Regular, "oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        Ok((tar.into_inner().context("end the image")?, digest))
    }

    fn config(&self) -> Value {
        // Layers are not compressed, so that the hash of a layer is that of what is in it.
        let ids: Vec<_> = self.layers.iter().map(|layer| format!("sha256:{}", hash(layer))).collect();
        json!({
            "architecture": architecture(),
            "os": "linux",
            "config": {
                "Entrypoint": [self.entrypoint],
                "User": self.user,
                "WorkingDir": "/",
            },
            "rootfs": {"type": "layers", "diff_ids": ids},
        })
    }
}

/// The name that images have for the machine that this was compiled for.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn json_blob(blobs: &mut BTreeMap<String, Vec<u8>>, kind: &str, value: &Value) -> Result<Value> {
    Ok(blob(blobs, kind, serde_json::to_vec(value)?))
}

/// Puts a blob under its hash, and gives what describes it.
fn blob(blobs: &mut BTreeMap<String, Vec<u8>>, kind: &str, bytes: Vec<u8>) -> Value {
    let hash = hash(&bytes);
    let described = json!({"mediaType": kind, "digest": format!("sha256:{hash}"), "size": bytes.len()});
    blobs.insert(hash, bytes);
    described
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn image() -> Image {
        let library = File::program("lib/x/libc.so.6", vec![1; 700]);
        let program = File::program("usr/bin/p", vec![2; 9]);
        let layers = vec![layer(&[library]).unwrap(), layer(&[program]).unwrap()];
        Image { name: "devicetaint.dev/p:1.2.3".to_owned(), entrypoint: "/usr/bin/p".to_owned(), user: "1:1", layers }
    }

    /// Path, mode, time and content of each entry.
    fn entries(tar: &[u8]) -> Vec<(String, u32, u64, Vec<u8>)> {
        let mut archive = tar::Archive::new(tar);
        let read = |entry: std::io::Result<tar::Entry<'_, &[u8]>>| {
            let mut entry = entry.unwrap();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            let header = entry.header();
            assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (0, 0));
            let path = entry.path().unwrap().display().to_string();
            (path, header.mode().unwrap(), header.mtime().unwrap(), bytes)
        };
        archive.entries().unwrap().map(read).collect()
    }

    #[test]
    fn a_layer_has_folders_before_files_and_no_time() {
        let files = [File::program("usr/bin/b", vec![]), File::program("usr/lib/a", vec![7])];
        let told: Vec<_> =
            entries(&layer(&files).unwrap()).into_iter().map(|(path, mode, time, _)| (path, mode, time)).collect();
        let wanted = ["usr/", "usr/bin/", "usr/lib/", "usr/bin/b", "usr/lib/a"];
        assert_eq!(told, wanted.map(|path| (path.to_owned(), 0o755, 0)));
    }

    #[test]
    fn every_digest_and_size_is_that_of_its_blob() {
        let (tar, digest) = image().archive().unwrap();
        let blobs: BTreeMap<_, _> = entries(&tar).into_iter().map(|(path, _, _, bytes)| (path, bytes)).collect();
        for (path, bytes) in &blobs {
            if let Some(named) = path.strip_prefix("blobs/sha256/").filter(|named| !named.is_empty()) {
                assert_eq!(named, hash(bytes));
            }
        }
        let find = |described: &Value| -> &Vec<u8> {
            let hash = described["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
            let bytes = &blobs[&format!("blobs/sha256/{hash}")];
            assert_eq!(described["size"], bytes.len());
            bytes
        };
        let index: Value = serde_json::from_slice(&blobs["index.json"]).unwrap();
        let described = &index["manifests"][0];
        assert_eq!(described["digest"], digest);
        assert_eq!(described["annotations"]["io.containerd.image.name"], "devicetaint.dev/p:1.2.3");
        let manifest: Value = serde_json::from_slice(find(described)).unwrap();
        let config: Value = serde_json::from_slice(find(&manifest["config"])).unwrap();
        assert_eq!(config["config"]["User"], "1:1");
        for (layer, id) in
            manifest["layers"].as_array().unwrap().iter().zip(config["rootfs"]["diff_ids"].as_array().unwrap())
        {
            assert_eq!(&layer["digest"], id, "layers are not compressed");
            assert!(entries(find(layer)).len() > 2);
        }
        assert_eq!(manifest["layers"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn the_same_files_give_the_same_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            let path = folder.path().join(name);
            image().write(&path).unwrap();
            std::fs::read(path).unwrap()
        };
        assert_eq!(write("a.tar"), write("b.tar"));
    }
}
