//! `cargo xtask image`: the images of deploy/Containerfile, without a container engine.
//!
//! cargo build -> programs -> the glibc files that they load ([`files`]) -> two layers an image, an OCI layout in one tar ([`layout`]) -> DIR/NAME.tar.
//! Prints one line an image: its file, its name and its digest. The same programs give the same bytes.

mod files;
pub(crate) mod layout;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use self::layout::Image;

/// Options of `cargo xtask image`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder for the tars; target/images of this checkout when absent
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// How the programs are built
    #[arg(long, value_enum, default_value_t = Profile::Dist)]
    profile: Profile,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Profile {
    /// What a cluster runs: small, and slow to build
    Dist,
    Release,
    Debug,
}

impl Profile {
    /// What cargo calls it.
    fn name(self) -> &'static str {
        match self {
            Self::Dist => "dist",
            Self::Release => "release",
            Self::Debug => "dev",
        }
    }
}

/// A program and the account that it runs as in its image.
struct Program {
    name: &'static str,
    user: &'static str,
}

/// The agent is root: kubelet's folders are. The controller is nobody in particular.
const PROGRAMS: [Program; 2] =
    [Program { name: "gpu-driver", user: "0:0" }, Program { name: "device-taint-controller", user: "65532:65532" }];

/// The images' common name, before the program's.
const REPOSITORY: &str = "devicetaint.dev";

pub(crate) fn run(args: &Args) -> Result<()> {
    let out = args.out.clone().unwrap_or_else(|| crate::repository_root().join("target/images"));
    for made in make(&out, args.profile)? {
        writeln!(io::stdout(), "{} {} {}", made.file.display(), made.name, made.digest)?;
    }
    Ok(())
}

/// An image that was made.
pub(crate) struct Made {
    pub(crate) file: PathBuf,
    name: String,
    digest: String,
}

/// Builds both programs and makes their images in a folder.
///
/// # Errors
/// When they do not build, or the folder cannot be written.
pub(crate) fn make(out: &Path, profile: Profile) -> Result<Vec<Made>> {
    fs::create_dir_all(out).with_context(|| format!("create {} (--out)", out.display()))?;
    let built = build(profile)?;
    let make = |program: &Program| {
        let path = built.iter().find(|path| path.ends_with(program.name));
        let path = path.with_context(|| format!("cargo built no {}", program.name))?;
        let image = image(program, path)?;
        let file = out.join(format!("{}.tar", program.name));
        let digest = image.write(&file)?;
        Ok(Made { file, name: image.name, digest })
    };
    PROGRAMS.iter().map(make).collect()
}

fn image(program: &Program, path: &Path) -> Result<Image> {
    let bytes = fs::read(path).with_context(|| format!("read {}", path.display()))?;
    let inside = format!("usr/bin/{}", program.name);
    Ok(Image {
        name: format!("{REPOSITORY}/{}:{}", program.name, env!("CARGO_PKG_VERSION")),
        entrypoint: format!("/{inside}"),
        user: program.user,
        layers: vec![layout::layer(&files::libraries(path)?)?, layout::layer(&[files::File::program(&inside, bytes)])?],
    })
}

/// Builds both programs and gives their paths, as cargo tells them.
fn build(profile: Profile) -> Result<Vec<PathBuf>> {
    let names = PROGRAMS.map(|program| program.name);
    let mut arguments = vec!["--profile", profile.name()];
    match profile {
        // One set of features with all that tests use: what they have built is not built again for its image.
        Profile::Debug => arguments.push("--workspace"),
        Profile::Dist | Profile::Release => arguments.extend(names.iter().flat_map(|name| ["--package", name])),
    }
    arguments.extend(names.iter().flat_map(|name| ["--bin", name]));
    crate::build(&arguments)
}
