//! The two images that every cluster has without a pull: busybox for tests, and the pause image that holds a pod's namespaces. Both are one layer made
//! from busybox-static, as OCI tars: this machine's busybox -> layer -> RUN/images/*.tar -> ctr import.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use tar::{Builder, EntryType};

use super::debian::BUSYBOX;
use super::layout::RunDir;
use crate::image::layout::{Image, append, header};

/// What pods of tests run.
pub(super) const TOOLBOX: &str = "devicetaint.dev/busybox:1";
/// What containerd starts first in every pod.
pub(super) const PAUSE: &str = "devicetaint.dev/pause:1";

/// It is the first process of its pod and only has to be there: containerd kills it.
const PAUSE_SCRIPT: &[u8] = b"#!/bin/sh\nexec sleep 2147483647\n";

/// Makes both images and gives them to containerd.
///
/// # Errors
/// When busybox is no static one, or containerd refuses an image.
pub(super) fn import(run: &RunDir, ctr: &Path) -> Result<()> {
    let busybox = fs::read(BUSYBOX).with_context(|| format!("read {BUSYBOX} (package busybox-static)"))?;
    ensure!(is_static(&busybox), "{BUSYBOX} needs shared libraries: install the package busybox-static in its place");
    let layer = layer(&busybox, &applets()?)?;
    fs::create_dir_all(run.path("images")).context("create the folder of images")?;
    for (name, entrypoint) in [(TOOLBOX, "/bin/sh"), (PAUSE, "/pause")] {
        let image = Image {
            name: name.to_owned(),
            entrypoint: entrypoint.to_owned(),
            user: "0:0",
            layers: vec![layer.clone()],
        };
        let file = run.path("images").join(name.replace(['/', ':'], "_")).with_extension("tar");
        image.write(&file)?;
        import_one(run, ctr, &file)?;
    }
    Ok(())
}

/// Gives containerd an image.
///
/// # Errors
/// When it refuses.
pub(super) fn import_one(run: &RunDir, ctr: &Path, file: &Path) -> Result<()> {
    let output = Command::new(ctr)
        .arg("--address")
        .arg(run.containerd_socket())
        .args(["--namespace", "k8s.io", "images", "import"])
        .arg(file)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("start {}", ctr.display()))?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ctr cannot import {}: {}", file.display(), told.trim());
    Ok(())
}

/// A program that needs the dynamic loader has its path in it.
fn is_static(program: &[u8]) -> bool {
    !program.windows(b"/ld-linux".len()).any(|part| part == b"/ld-linux")
}

/// The names that busybox answers to.
fn applets() -> Result<Vec<String>> {
    let output = Command::new(BUSYBOX).arg("--list").output().with_context(|| format!("start {BUSYBOX}"))?;
    ensure!(output.status.success(), "`{BUSYBOX} --list` failed: {}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter(|name| *name != "busybox").map(str::to_owned).collect())
}

/// A small root: busybox under all its names, an account, and the folders that programs expect.
fn layer(busybox: &[u8], applets: &[String]) -> Result<Vec<u8>> {
    let mut tar = Builder::new(Vec::new());
    for (folder, mode) in [("bin/", 0o755), ("etc/", 0o755), ("root/", 0o700), ("tmp/", 0o1777)] {
        append(&mut tar, EntryType::Directory, folder, mode, &[])?;
    }
    append(&mut tar, EntryType::Regular, "bin/busybox", 0o755, busybox)?;
    append(&mut tar, EntryType::Regular, "etc/passwd", 0o644, b"root:x:0:0:root:/root:/bin/sh\n")?;
    append(&mut tar, EntryType::Regular, "etc/group", 0o644, b"root:x:0:\n")?;
    append(&mut tar, EntryType::Regular, "pause", 0o755, PAUSE_SCRIPT)?;
    for applet in applets {
        let mut header = header(EntryType::Symlink, 0o777);
        tar.append_link(&mut header, format!("bin/{applet}"), "busybox").with_context(|| format!("add {applet}"))?;
    }
    tar.into_inner().context("end the layer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layer_has_busybox_under_all_its_names() {
        let bytes = layer(b"ELF", &["sh".to_owned(), "sleep".to_owned()]).unwrap();
        let mut archive = tar::Archive::new(bytes.as_slice());
        let told: Vec<_> = archive
            .entries()
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let link = entry.link_name().unwrap().map(|link| link.display().to_string());
                (entry.path().unwrap().display().to_string(), entry.header().mode().unwrap(), link)
            })
            .collect();
        let link = |name: &str| (name.to_owned(), 0o777, Some("busybox".to_owned()));
        assert!(told.contains(&link("bin/sh")) && told.contains(&link("bin/sleep")), "{told:?}");
        assert!(told.contains(&("bin/busybox".to_owned(), 0o755, None)));
        assert!(told.contains(&("tmp/".to_owned(), 0o1777, None)));
    }

    #[test]
    fn a_busybox_with_libraries_is_seen() {
        assert!(is_static(b"\x7fELF and so on"));
        assert!(!is_static(b"\x7fELF /lib64/ld-linux-x86-64.so.2\0"));
    }
}
