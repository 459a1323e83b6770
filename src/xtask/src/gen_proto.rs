//! `cargo xtask gen`: proto/proto/*.proto -> protox (no protoc) -> tonic-prost-build -> proto/src/generated/*.rs.
//!
//! Each proto is compiled alone into a folder of its own: two of kubelet's contracts share the proto package `v1`, and prost names its output by
//! package.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use prost::Message;

/// Which proto gives which file below `proto/src/generated`.
const CONTRACTS: [(&str, &str); 6] = [
    ("pluginregistration/v1/api.proto", "registration_v1.rs"),
    ("dra/v1/api.proto", "dra_v1.rs"),
    ("dra/v1beta1/api.proto", "dra_v1beta1.rs"),
    ("dra-health/v1/api.proto", "health_v1.rs"),
    ("dra-health/v1alpha1/api.proto", "health_v1alpha1.rs"),
    ("podresources/v1/api.proto", "podresources_v1.rs"),
];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write nothing; fail when the committed files are not what would be written
    #[arg(long)]
    check: bool,
}

/// A generated file: its name and what it should hold.
struct Generated {
    name: &'static str,
    text: String,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let root = crate::repository_root();
    let files = generate(&root.join("proto/proto"))?;
    let folder = root.join("proto/src/generated");
    if args.check { check(&folder, &files) } else { write(&folder, &files) }
}

fn generate(protos: &Path) -> Result<Vec<Generated>> {
    CONTRACTS
        .iter()
        .map(|&(proto, name)| {
            let text = compile(protos, proto).with_context(|| format!("compile {proto}"))?;
            Ok(Generated { name, text })
        })
        .collect()
}

/// The Rust code of one proto.
fn compile(protos: &Path, proto: &str) -> Result<String> {
    let mut compiler = protox::Compiler::new([protos])?;
    // Source info carries the comments, which become the doc comments of the Rust items.
    compiler.include_source_info(true).open_file(proto)?;
    let set = prost_types::FileDescriptorSet::decode(compiler.encode_file_descriptor_set().as_slice())?;
    let out = tempfile::tempdir()?;
    tonic_prost_build::configure()
        // Clients are made over a channel that the caller dials: kubelet's sockets have no URL to connect to.
        .build_transport(false)
        // A map in the order of its keys makes equal answers equal bytes.
        .btree_map(".")
        .out_dir(out.path())
        .compile_fds(set)?;
    let code = single_file(out.path())?;
    Ok(format!("// Written by `cargo xtask gen` from proto/proto/{proto}; do not edit.\n{code}"))
}

fn single_file(folder: &Path) -> Result<String> {
    let paths = rust_files(folder)?;
    let [path] = paths.as_slice() else { bail!("one file expected, the generator wrote {}", paths.len()) };
    Ok(fs::read_to_string(path)?)
}

fn rust_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("read folder {}", folder.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    paths.sort();
    Ok(paths)
}

fn write(folder: &Path, files: &[Generated]) -> Result<()> {
    fs::create_dir_all(folder)?;
    for stray in strays(folder, files)? {
        fs::remove_file(&stray)?;
        writeln!(io::stdout(), "removed {}", stray.display())?;
    }
    for file in files {
        let path = folder.join(file.name);
        if read_or_empty(&path)? != file.text {
            fs::write(&path, &file.text).with_context(|| format!("write {}", path.display()))?;
            writeln!(io::stdout(), "wrote {}", path.display())?;
        }
    }
    Ok(())
}

fn check(folder: &Path, files: &[Generated]) -> Result<()> {
    let mut differences = Vec::new();
    for file in files {
        if let Some(difference) = first_difference(&read_or_empty(&folder.join(file.name))?, &file.text) {
            differences.push(format!("{}: {difference}", file.name));
        }
    }
    differences
        .extend(strays(folder, files)?.iter().map(|path| format!("{}: no proto gives this file", path.display())));
    ensure!(differences.is_empty(), "generated files are stale, run `cargo xtask gen`:\n{}", differences.join("\n"));
    Ok(())
}

/// Files that no contract gives any longer.
fn strays(folder: &Path, files: &[Generated]) -> Result<Vec<PathBuf>> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let mut paths = rust_files(folder)?;
    paths.retain(|path| !files.iter().any(|file| path.ends_with(file.name)));
    Ok(paths)
}

/// A file that is not there counts as an empty one: it differs from everything that is generated.
fn read_or_empty(path: &Path) -> Result<String> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        read => read.with_context(|| format!("read {}", path.display())),
    }
}

/// Where two texts part, in words, and by how many lines they differ in length; `None` when they are equal.
fn first_difference(committed: &str, generated: &str) -> Option<String> {
    if committed == generated {
        return None;
    }
    let (old, new): (Vec<_>, Vec<_>) = (committed.lines().collect(), generated.lines().collect());
    let line = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let show = |lines: &[&str]| lines.get(line).map_or("end of file".to_owned(), |text| format!("`{}`", text.trim()));
    Some(format!(
        "line {}: committed {}, generated {} ({} lines committed, {} generated)",
        line + 1,
        show(&old),
        show(&new),
        old.len(),
        new.len()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_have_no_difference() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
    }

    #[test]
    fn a_difference_names_its_line_and_both_sides() {
        let told = first_difference("a\n  b\n", "a\nc\nd\n").unwrap();
        assert_eq!(told, "line 2: committed `b`, generated `c` (2 lines committed, 3 generated)");
    }

    #[test]
    fn a_shorter_text_ends_first() {
        let told = first_difference("a\n", "a\nb\n").unwrap();
        assert_eq!(told, "line 2: committed end of file, generated `b` (1 lines committed, 2 generated)");
    }

    #[test]
    fn check_finds_a_changed_a_missing_and_a_stray_file_and_write_repairs_them() {
        let folder = tempfile::tempdir().unwrap();
        let files =
            [Generated { name: "a.rs", text: "new\n".to_owned() }, Generated { name: "b.rs", text: "b\n".to_owned() }];
        fs::write(folder.path().join("a.rs"), "old\n").unwrap();
        fs::write(folder.path().join("z.rs"), "").unwrap();

        let told = check(folder.path(), &files).unwrap_err().to_string();
        assert!(
            told.contains("a.rs: line 1") && told.contains("b.rs: line 1") && told.contains("z.rs: no proto"),
            "{told}"
        );

        write(folder.path(), &files).unwrap();
        check(folder.path(), &files).unwrap();
    }
}
