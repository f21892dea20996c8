//! Static programs: built here, or taken as they are, and looked at.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::repository::{Repository, run, say};

/// Target for which programs are built unless another one is named.
pub(crate) const USUAL_TARGET: &str = "x86_64-unknown-linux-gnu";

/// A system that programs can be built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) triple: &'static str,
    /// Processor, as images and Debian name it.
    pub(crate) architecture: &'static str,
    /// Number of the processor in the head of a program.
    machine: u16,
    /// Linker where the target is not that of this machine, and the Debian package that has it.
    linker: &'static str,
    linker_package: &'static str,
}

const TARGETS: [Target; 2] = [
    Target {
        triple: USUAL_TARGET,
        architecture: "amd64",
        machine: 62,
        linker: "x86_64-linux-gnu-gcc",
        linker_package: "gcc-x86-64-linux-gnu",
    },
    Target {
        triple: "aarch64-unknown-linux-gnu",
        architecture: "arm64",
        machine: 183,
        linker: "aarch64-linux-gnu-gcc",
        linker_package: "gcc-aarch64-linux-gnu",
    },
];

impl Target {
    /// Finds a target.
    ///
    /// # Errors
    /// Lists those that there are.
    pub(crate) fn named(triple: &str) -> Result<Self> {
        let found = TARGETS.into_iter().find(|target| target.triple == triple);
        let all = TARGETS.map(|target| target.triple).join(", ");
        found.with_context(|| format!("there is no target {triple}; programs are made for {all}"))
    }

    /// Returns what this machine lacks to build for it, a line each.
    fn lacks(self) -> Vec<String> {
        let mut lacks = Vec::new();
        let folder = run(Command::new("rustc").args(["--print", "target-libdir", "--target", self.triple]));
        if !folder.is_ok_and(|folder| Path::new(folder.trim()).exists()) {
            lacks.push(format!("Rust's standard library for it: rustup target add {}", self.triple));
        }
        let is_own = self.triple.starts_with(std::env::consts::ARCH);
        if !is_own && !is_in_path(self.linker) {
            lacks.push(format!("the linker {} (Debian's package {})", self.linker, self.linker_package));
        }
        lacks
    }
}

fn is_in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Builds a static program of the release, without paths of this machine in it, and returns where it is.
///
/// # Errors
/// Says what this machine lacks, or that the build failed.
pub(crate) fn build(repository: &Repository, target: Target, package: &str, program: &str) -> Result<PathBuf> {
    let lacks = target.lacks();
    ensure!(
        lacks.is_empty(),
        "{program} was not built for {}: this machine lacks\n  {}",
        target.triple,
        lacks.join("\n  ")
    );
    say(&format!("building {program} for {}: ten minutes where nothing is built yet", target.triple));
    let mut build = Command::new(cargo());
    build.args(["build", "--locked", "--release", "--target", target.triple, "--package", package, "--bin", program]);
    build.current_dir(&repository.root);
    let remapped = repository.remapped();
    let flags = remapped.iter().map(|(from, to)| format!("--remap-path-prefix={from}={to}"));
    let flags: Vec<_> = ["-Ctarget-feature=+crt-static".to_owned()].into_iter().chain(flags).collect();
    build.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    let maps: Vec<_> = remapped.iter().map(|(from, to)| format!("-ffile-prefix-map={from}={to}")).collect();
    let triple = target.triple.replace('-', "_");
    build.env(format!("CFLAGS_{triple}"), maps.join(" "));
    if !target.triple.starts_with(std::env::consts::ARCH) {
        build.env(format!("CARGO_TARGET_{}_LINKER", triple.to_uppercase()), target.linker);
    }
    ensure!(build.status().context("cargo does not start")?.success(), "{program} was not built");
    let built = repository.target_folder.join(target.triple).join("release").join(program);
    has_no_place(repository, &built)?;
    Ok(built)
}

/// Finds a program in a folder of programs that are built already.
///
/// # Errors
/// Names the file that is not there.
pub(crate) fn take(folder: &Path, program: &str) -> Result<PathBuf> {
    let path = folder.join(program);
    ensure!(path.is_file(), "there is no {}: --programs is a folder with {program} in it", path.display());
    Ok(path)
}

/// Checks that a program is static and for the target.
///
/// # Errors
/// Says what is wrong with it.
pub(crate) fn inspect(program: &Path, target: Target) -> Result<()> {
    let bytes = fs::read(program).with_context(|| program.display().to_string())?;
    let name = program.display();
    let Some(head) = Head::of(&bytes) else {
        bail!("{name} is no program for Linux with 64 bits");
    };
    ensure!(head.machine == target.machine, "{name} is for another processor than {}", target.triple);
    ensure!(
        !head.has_interpreter,
        "{name} is not static: it needs a loader and libraries that the image does not have; build it with \
         `-C target-feature=+crt-static`, or leave --programs out"
    );
    Ok(())
}

/// Checks that a program names no place of this machine: built elsewhere, it would have another digest.
///
/// # Errors
/// Says which place it names.
fn has_no_place(repository: &Repository, program: &Path) -> Result<()> {
    let bytes = fs::read(program)?;
    for (place, _) in repository.remapped() {
        ensure!(
            !contains(&bytes, place.as_bytes()),
            "{} names {place}: no other machine could build it",
            program.display()
        );
    }
    Ok(())
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    let Some(first) = part.first() else {
        return true;
    };
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| byte == first) {
        rest = rest.get(at..).unwrap_or_default();
        if rest.starts_with(part) {
            return true;
        }
        rest = rest.get(1..).unwrap_or_default();
    }
    false
}

/// Begin of a program, as far as it is of interest.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    machine: u16,
    /// Whether it asks for a loader, which brings libraries.
    has_interpreter: bool,
}

impl Head {
    /// Type of the segment that names the loader.
    const INTERPRETER: u32 = 3;

    /// Reads the head of a program for Linux with 64 bits, little-endian.
    fn of(bytes: &[u8]) -> Option<Self> {
        if bytes.get(..6)? != b"\x7fELF\x02\x01" {
            return None;
        }
        let short = |at: usize| Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?));
        let table = u64::from_le_bytes(bytes.get(32..40)?.try_into().ok()?);
        let (table, step, count) = (usize::try_from(table).ok()?, usize::from(short(54)?), usize::from(short(56)?));
        let kind = |index: usize| {
            let at = table.checked_add(index.checked_mul(step)?)?;
            Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
        };
        let has_interpreter = (0..count).any(|index| kind(index) == Some(Self::INTERPRETER));
        Some(Self { machine: short(18)?, has_interpreter })
    }
}

/// Returns the Cargo that started this, or the one in the path.
pub(crate) fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program of one segment.
    fn program(machine: u16, segment: u32) -> Vec<u8> {
        let mut bytes = vec![0; 120];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes[32..40].copy_from_slice(&64_u64.to_le_bytes());
        bytes[54..56].copy_from_slice(&56_u16.to_le_bytes());
        bytes[56..58].copy_from_slice(&1_u16.to_le_bytes());
        bytes[64..68].copy_from_slice(&segment.to_le_bytes());
        bytes
    }

    #[track_caller]
    fn refused(bytes: &[u8]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        fs::write(&path, bytes).unwrap();
        inspect(&path, Target::named(USUAL_TARGET).unwrap()).unwrap_err().to_string()
    }

    #[test]
    fn programs_with_a_loader_or_for_others_are_refused() {
        assert!(refused(&program(62, Head::INTERPRETER)).contains("is not static"));
        assert!(refused(&program(183, 1)).contains("another processor"));
        assert!(refused(b"#!/bin/sh").contains("no program"));
        assert_eq!(Head::of(&program(62, 1)), Some(Head { machine: 62, has_interpreter: false }));
    }

    #[test]
    fn unknown_target_is_refused_with_those_that_there_are() {
        let said = Target::named("riscv64gc-unknown-linux-gnu").unwrap_err().to_string();
        assert!(said.contains("aarch64-unknown-linux-gnu"), "{said}");
    }

    #[test]
    fn program_that_names_a_place_of_this_machine_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let repository = Repository { root: "/own".into(), target_folder: "/own/target".into(), cargo_home: None };
        fs::write(&path, "panicked at /source/main.rs").unwrap();
        has_no_place(&repository, &path).unwrap();
        fs::write(&path, "panicked at /own/main.rs").unwrap();
        assert!(has_no_place(&repository, &path).unwrap_err().to_string().contains("names /own"));
    }

    #[test]
    fn places_are_found_wherever_they_are() {
        assert!(contains(b"aab", b"ab") && contains(b"ab", b"ab") && !contains(b"aa", b"ab"));
    }
}
