//! The command `deb`: Debian packages of gateway and agent, each with its unit, written without Debian's tools.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;

use crate::blob::{Sum, gzip};
use crate::contents::Kind;
use crate::programs::{self, Target, USUAL_TARGET};
use crate::repository::{Repository, VERSION, say};
use crate::tree::{PROGRAM, ROOT, TEXT, Tree};

/// Mode of folders and files that root alone reads.
const SECRET_FOLDER: u32 = 0o700;

/// Writes Debian packages of gateway and agent, each with a unit of systemd and a user of its own.
///
/// Builds static programs of the release first, unless --programs says where they are: the packages need no library, so that one is for every release of Debian and Ubuntu. The same source gives the same bytes. Prints a line for each package: its digest and its file.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask deb
  apt install ./target/packages/workspace-gateway_0.1.0_amd64.deb
  cargo xtask deb --programs target/debug/static --maintainer 'Ann <ann@example.com>'")]
pub(crate) struct Arguments {
    /// Folder for the packages.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,

    /// Folder of static programs that are built already.
    #[arg(long, value_name = "FOLDER")]
    programs: Option<PathBuf>,

    /// System that the programs are for: x86_64-unknown-linux-gnu or aarch64-unknown-linux-gnu.
    #[arg(long, value_name = "TARGET", default_value = USUAL_TARGET)]
    target: String,

    /// Name and address of the builder, who answers for the package.
    #[arg(long, value_name = "NAME <ADDRESS>", default_value = "Workspace Gateway <root@localhost>")]
    maintainer: String,

    /// Leaves the files as they are: quicker to write, larger.
    #[arg(long)]
    uncompressed: bool,
}

/// Makes the packages.
///
/// # Errors
/// Names the step that failed.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let repository = Repository::open()?;
    let target = Target::named(&arguments.target)?;
    let out = arguments.out.clone().unwrap_or_else(|| repository.target_folder.join("packages"));
    fs::create_dir_all(&out).with_context(|| out.display().to_string())?;
    for package in [&GATEWAY, &AGENT] {
        let program = match &arguments.programs {
            Some(folder) => programs::take(folder, package.program)?,
            None => programs::build(&repository, target, package.kind.package(), package.program)?,
        };
        programs::inspect(&program, target)?;
        let file = out.join(format!("{}_{VERSION}_{}.deb", package.name, target.architecture));
        say(&format!("writing {}", file.display()));
        let data = package.data(&repository.root, &program)?;
        let size = data.size()?;
        let control = package.control(target, &arguments.maintainer, size);
        let control = packed(&control, repository.time()?, true)?;
        let bytes =
            archive(&control, &packed(&data, repository.time()?, !arguments.uncompressed)?, repository.time()?)?;
        fs::write(&file, &bytes).with_context(|| file.display().to_string())?;
        writeln!(io::stdout().lock(), "{}  {}", Sum::of(&bytes).digest(), file.display())?;
    }
    Ok(())
}

/// What a package is called, and what it makes.
#[derive(Debug)]
struct Package {
    kind: Kind,
    name: &'static str,
    program: &'static str,
    /// User of the unit, which has the same name as the program.
    user: &'static str,
    /// Folder of its state, which is the user's home.
    home: &'static str,
    /// Folder of its configuration, below the root.
    folder: &'static str,
    /// File there that an administrator changes.
    settings: &'static str,
}

const GATEWAY: Package = Package {
    kind: Kind::Gateway,
    name: "workspace-gateway",
    program: "gateway",
    user: "_gateway",
    home: "/var/lib/gateway",
    folder: "etc/gateway",
    settings: "gateway.toml",
};

const AGENT: Package = Package {
    kind: Kind::Agent,
    name: "workspace-agent",
    program: "workspace-agent",
    user: "_workspace-agent",
    home: "/var/lib/workspace-agent",
    folder: "etc/workspace-agent",
    settings: "agent.env",
};

impl Package {
    /// Returns the files that it installs.
    fn data(&self, root: &Path, program: &Path) -> io::Result<Tree> {
        let Self { name, program: command, folder, settings, .. } = self;
        let deploy = root.join("deploy");
        let mut tree = Tree::default();
        tree.copy(&format!("usr/bin/{command}"), PROGRAM, program);
        let unit = fs::read(deploy.join(format!("systemd/{command}.service")))?;
        tree.text(&format!("lib/systemd/system/{command}.service"), TEXT, unit);
        tree.text(&format!("{folder}/{settings}"), TEXT, fs::read(deploy.join("debian").join(settings))?);
        if self.kind == Kind::Gateway {
            tree.folder(&format!("{folder}/secrets"), SECRET_FOLDER, ROOT);
        }
        let copyright = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\nFiles: *\n\
                         Copyright: the authors of Workspace Gateway\nLicense: Apache-2.0\n \
                         /usr/share/common-licenses/Apache-2.0\n";
        tree.text(&format!("usr/share/doc/{name}/copyright"), TEXT, copyright);
        tree.text(&format!("usr/share/doc/{name}/README"), TEXT, fs::read(root.join("docs/guide/one-machine.md"))?);
        Ok(tree)
    }

    /// Returns what dpkg reads: name and relations, the files that it keeps when they were changed, and what it runs.
    fn control(&self, target: Target, maintainer: &str, size: u64) -> Tree {
        let Self { name, program, user, home, folder, settings, kind } = self;
        let mut tree = Tree::default();
        let kibibytes = size.div_ceil(1024);
        tree.text(
            "control",
            TEXT,
            format!(
                "Package: {name}\nVersion: {VERSION}\nArchitecture: {}\nMaintainer: {maintainer}\n\
                 Installed-Size: {kibibytes}\nDepends: passwd\nRecommends: ca-certificates\nSection: net\n\
                 Priority: optional\nDescription: {}\n",
                target.architecture,
                kind.description()
            ),
        );
        tree.text("conffiles", TEXT, format!("/{folder}/{settings}\n"));
        let postinst = format!(
            "#!/bin/sh\nset -e\nif [ \"$1\" = configure ]; then\n  \
             getent passwd {user} >/dev/null ||\n    \
             useradd --system --user-group --home-dir {home} --no-create-home --shell /usr/sbin/nologin {user}\n  \
             if [ -d /run/systemd/system ]; then\n    systemctl daemon-reload\n    \
             systemctl try-restart {program}.service ||\n      \
             echo '{program} did not start again: systemctl status {program}' >&2\n  fi\nfi\n"
        );
        tree.text("postinst", PROGRAM, postinst);
        let prerm = format!(
            "#!/bin/sh\nset -e\nif [ \"$1\" = remove ] && [ -d /run/systemd/system ]; then\n  \
             systemctl disable --now {program}.service || true\nfi\n"
        );
        tree.text("prerm", PROGRAM, prerm);
        let postrm = format!(
            "#!/bin/sh\nset -e\nif [ -d /run/systemd/system ]; then systemctl daemon-reload; fi\n\
             # What users own stays: {home} goes when an administrator takes it away.\n"
        );
        tree.text("postrm", PROGRAM, postrm);
        tree
    }
}

/// Files of one member of a package.
#[derive(Debug)]
struct Packed {
    /// Ending of the member's name.
    ending: &'static str,
    bytes: Vec<u8>,
}

fn packed(tree: &Tree, time: u64, is_compressed: bool) -> io::Result<Packed> {
    Ok(if is_compressed {
        Packed { ending: ".gz", bytes: tree.write(gzip(Vec::new()), time)?.finish()? }
    } else {
        Packed { ending: "", bytes: tree.write(Vec::new(), time)? }
    })
}

/// Writes an archive of dpkg's format.
fn archive(control: &Packed, data: &Packed, time: u64) -> io::Result<Vec<u8>> {
    let mut bytes = b"!<arch>\n".to_vec();
    let members = [
        ("debian-binary".to_owned(), b"2.0\n".as_slice()),
        (format!("control.tar{}", control.ending), control.bytes.as_slice()),
        (format!("data.tar{}", data.ending), data.bytes.as_slice()),
    ];
    for (name, content) in members {
        let size = content.len();
        writeln!(bytes, "{name:<16}{time:<12}{:<6}{:<6}{:<8}{size:<10}`", 0, 0, "100644")?;
        bytes.extend(content);
        // Members begin at even places.
        if size % 2 == 1 {
            bytes.push(b'\n');
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archive_has_three_members_at_even_places() {
        let mut tree = Tree::default();
        tree.text("a", TEXT, "text");
        let write = || archive(&packed(&tree, 7, true).unwrap(), &packed(&tree, 7, false).unwrap(), 7).unwrap();
        let bytes = write();
        assert_eq!(bytes, write());
        let mut at = 8;
        let mut names = Vec::new();
        while at < bytes.len() {
            let head = std::str::from_utf8(&bytes[at..at + 60]).unwrap();
            assert!(head.ends_with("`\n"), "{head:?}");
            names.push(head[..16].trim().to_owned());
            let size: usize = head[48..58].trim().parse().unwrap();
            at += 60 + size + size % 2;
        }
        assert_eq!(names, ["debian-binary", "control.tar.gz", "data.tar"]);
    }

    #[test]
    fn variables_of_units_and_containers_are_keys_of_the_configuration() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let reference = fs::read_to_string(root.join("docs/reference/configuration.md")).unwrap();
        let mut count = 0;
        for file in ["compose/compose.yaml", "systemd/gateway.service"] {
            let text = fs::read_to_string(root.join("deploy").join(file)).unwrap();
            let words = text.split(|letter: char| !letter.is_ascii_uppercase() && letter != '_');
            for word in words.filter_map(|word| word.strip_prefix("GATEWAY_")) {
                let name = word.to_lowercase();
                let (section, key) = name.rsplit_once("__").unwrap_or(("", &name));
                let title = if section.is_empty() { "Top level".to_owned() } else { format!("`[{section}]`") };
                let (_, behind) = reference.split_once(&format!("\n## {title}\n")).unwrap();
                let table = behind.split("\n## ").next().unwrap();
                assert!(table.contains(&format!("\n| `{key}` |")), "{file}: GATEWAY_{word}");
                count += 1;
            }
        }
        assert!(count > 4, "{count}");
        let compose = fs::read_to_string(root.join("deploy/compose/compose.yaml")).unwrap();
        for kind in [Kind::Gateway, Kind::Agent] {
            assert!(compose.contains(&format!("image: localhost/{}:{VERSION}\n", kind.image())), "{kind:?}");
        }
    }

    #[test]
    fn units_run_what_the_packages_install_as_their_users() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for package in [&GATEWAY, &AGENT] {
            let unit = fs::read_to_string(root.join(format!("deploy/systemd/{}.service", package.program))).unwrap();
            let lines: Vec<_> = unit.lines().collect();
            assert!(lines.iter().any(|line| line.starts_with(&format!("ExecStart=/usr/bin/{} ", package.program))));
            assert!(lines.contains(&format!("User={}", package.user).as_str()));
            assert!(lines.contains(&format!("WorkingDirectory={}", package.home).as_str()));
            assert!(unit.contains(&format!("/{}/{}", package.folder, package.settings)));
            let data = package.data(root, Path::new("/none")).unwrap();
            assert!(data.has_program(&format!("usr/bin/{}", package.program)));
        }
    }
}
