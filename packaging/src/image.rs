//! The command `image`.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::blob::{Blobs, Layer, Sum};
use crate::contents::{Kind, Tools, alone, tools};
use crate::layout::{Image, archive};
use crate::parts::{self, Subject};
use crate::programs::{self, Target, USUAL_TARGET};
use crate::repository::{Repository, VERSION, say, written};

/// Writes container images, each as an OCI layout (a folder), as one file of the same, and with its parts list beside it.
///
/// Builds static programs of the release first, unless --programs says where they are. The same source gives the same digest: files have the time of the commit, or of SOURCE_DATE_EPOCH. Prints a line for each image: its digest, its name and its file.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask image                                        gateway and agent, below target/images
  podman load --input target/images/gateway.tar
  skopeo copy oci-archive:target/images/gateway.tar docker://registry.example.com/gateway:0.1.0
  ctr --namespace k8s.io images import target/images/gateway.tar
  cargo xtask image gateway --programs target/debug/static --uncompressed
  cargo xtask image tools --base base.tar --editor code-server-4.100.3-linux-amd64 --ssh ssh-tools")]
pub(crate) struct Arguments {
    /// Images to make.
    #[arg(value_enum, value_name = "IMAGE", default_values = ["gateway", "agent"])]
    images: Vec<Kind>,

    /// Folder for the images. What is there under their names is replaced.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,

    /// Folder of static programs that are built already.
    #[arg(long, value_name = "FOLDER")]
    programs: Option<PathBuf>,

    /// System that the programs are for: x86_64-unknown-linux-gnu or aarch64-unknown-linux-gnu.
    #[arg(long, value_name = "TARGET", default_value = USUAL_TARGET)]
    target: String,

    /// Registry and folder in front of the images' names.
    #[arg(long, value_name = "NAME", default_value = "localhost")]
    repository: String,

    /// Tag of the images.
    #[arg(long, default_value = VERSION)]
    tag: String,

    /// Address of the source, for the label of that name.
    #[arg(long, value_name = "URL")]
    source: Option<String>,

    /// Authorities that programs in the images trust, as a file of certificates, in place of Mozilla's.
    #[arg(long, value_name = "FILE")]
    authorities: Option<PathBuf>,

    /// Leaves layers as they are: quicker to write, slower to send.
    #[arg(long)]
    uncompressed: bool,

    /// Root file system that the tools are put on, as a tar archive: it needs /bin/sh and git.
    #[arg(long, value_name = "FILE", required_if_eq("images", "tools"))]
    base: Option<PathBuf>,

    /// Folder of an unpacked code-server, for the tools.
    #[arg(long, value_name = "FOLDER", required_if_eq("images", "tools"))]
    editor: Option<PathBuf>,

    /// Folder that deploy/images/ssh-tools.sh has filled, for the tools.
    #[arg(long, value_name = "FOLDER", required_if_eq("images", "tools"))]
    ssh: Option<PathBuf>,
}

/// Makes the images.
///
/// # Errors
/// Names the step that failed.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let repository = Repository::open()?;
    let target = Target::named(&arguments.target)?;
    let out = arguments.out.clone().unwrap_or_else(|| repository.target_folder.join("images"));
    for kind in &arguments.images {
        let kind = *kind;
        let program = match &arguments.programs {
            Some(folder) => programs::take(folder, kind.program())?,
            None => programs::build(&repository, target, kind.package(), kind.program())?,
        };
        programs::inspect(&program, target)?;
        let digest = Work { arguments, repository: &repository, target, kind, program: &program, out: &out }.write()?;
        let name = arguments.name(kind);
        writeln!(std::io::stdout().lock(), "{digest}  {name}  {}", out.join(kind.image()).display())?;
    }
    Ok(())
}

impl Arguments {
    fn name(&self, kind: Kind) -> String {
        format!("{}/{}:{}", self.repository, kind.image(), self.tag)
    }
}

/// One image under way.
#[derive(Debug)]
struct Work<'w> {
    arguments: &'w Arguments,
    repository: &'w Repository,
    target: Target,
    kind: Kind,
    program: &'w Path,
    out: &'w Path,
}

impl Work<'_> {
    /// Writes layout, file and parts list, and returns the digest.
    fn write(&self) -> Result<String> {
        let name = self.arguments.name(self.kind);
        say(&format!("writing {name}"));
        let layout = self.out.join(self.kind.image());
        if layout.exists() {
            if !layout.join("oci-layout").exists() {
                bail!("{} is there and is no image: name another folder with --out", layout.display());
            }
            fs::remove_dir_all(&layout).with_context(|| layout.display().to_string())?;
        }
        fs::create_dir_all(layout.join("blobs/sha256")).with_context(|| layout.display().to_string())?;
        let layers = self.layers(&Blobs(&layout.join("blobs/sha256")))?;
        let list = parts::list(
            self.repository,
            &Subject {
                package: self.kind.package(),
                name: self.kind.program(),
                sum: &Sum::of(&fs::read(self.program)?),
                target: self.target,
            },
        )?;
        let labels =
            self.repository.labels(self.kind.image(), self.kind.description(), self.arguments.source.as_deref())?;
        let image = Image {
            name: &name,
            tag: &self.arguments.tag,
            architecture: self.target.architecture,
            created: &written(self.repository.time()?)?,
            labels: &labels,
            settings: &self.kind.settings(),
        };
        let digest = image.finish(&layout, &layers, list.as_bytes())?;
        archive(&layout, &self.out.join(format!("{}.tar", self.kind.image())), &name)?;
        fs::write(self.out.join(format!("{}.cdx.json", self.kind.image())), list)?;
        Ok(digest)
    }

    fn layers(&self, blobs: &Blobs<'_>) -> Result<Vec<Layer>> {
        let Arguments { authorities, base, editor, ssh, uncompressed, .. } = self.arguments;
        let time = self.repository.time()?;
        let trees = match (self.kind, base, editor, ssh) {
            (Kind::Tools, Some(_), Some(editor), Some(ssh)) => {
                let files = fs::read_to_string(self.repository.root.join("deploy/images/tools.files"))?;
                tools(&Tools { agent: self.program, editor, ssh }, &files)?
            }
            (Kind::Tools, ..) => anyhow::bail!("the tools need --base, --editor and --ssh"),
            (Kind::Gateway | Kind::Agent, ..) => vec![alone(self.kind, self.program, authorities.as_deref())?],
        };
        let mut layers = Vec::new();
        if let Some(base) = base.as_ref().filter(|_| self.kind == Kind::Tools) {
            layers.push(blobs.archive(base).with_context(|| base.display().to_string())?);
        }
        for tree in &trees {
            layers.push(blobs.layer(tree, time, !uncompressed)?);
        }
        Ok(layers)
    }
}
