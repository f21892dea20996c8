//! Input for a new workspace, read from files: nothing of it is taken from the command line itself.

use std::io::Read;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::CreateArgs;
use gateway_store::{SecretText, Variable, VariableKind};
use gateway_workspaces::service::VARIABLES_BYTES_MAX;

/// Longest devfile that is read, in bytes: a little more than a gateway takes, so that the gateway reports it.
const DEVFILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Longest file with variables that is read, in bytes: likewise.
const VARIABLES_FILE_BYTES_MAX: u64 = 2 * VARIABLES_BYTES_MAX as u64;

/// Reason why a file cannot be used. Repeats nothing of its content.
#[derive(Debug, Error)]
pub(super) enum BadFile {
    #[error("{}: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{} is longer than {bytes_max} bytes", path.display())]
    TooLong { path: PathBuf, bytes_max: u64 },
    #[error("{} is not text in UTF-8", path.display())]
    NotText { path: PathBuf },
    #[error("{}, line {line}: has to be NAME=VALUE", path.display())]
    NoVariable { path: PathBuf, line: usize },
    #[error("--secret-file has to be NAME=FILE")]
    NoName,
}

/// Reads the devfile; `None` for the built-in one.
pub(super) fn devfile(args: &CreateArgs) -> Result<Option<String>, BadFile> {
    let Some(path) = &args.devfile else { return Ok(None) };
    if path.as_os_str() == "-" {
        return text(path, std::io::stdin().lock(), DEVFILE_BYTES_MAX).map(Some);
    }
    open(path, DEVFILE_BYTES_MAX).map(Some)
}

/// Reads all variables.
pub(super) fn variables(args: &CreateArgs) -> Result<Vec<Variable>, BadFile> {
    let mut variables = Vec::new();
    for path in &args.env_file {
        let text = open(path, VARIABLES_FILE_BYTES_MAX)?;
        let lines = parse_env(&text).map_err(|line| BadFile::NoVariable { path: path.clone(), line })?;
        variables.extend(lines.into_iter().map(|(name, value)| variable(VariableKind::Env, name, value)));
    }
    for named in &args.secret_file {
        let (name, path) = named.split_once('=').ok_or(BadFile::NoName)?;
        let text = open(Path::new(path), VARIABLES_FILE_BYTES_MAX)?;
        variables.push(variable(VariableKind::File, name, &text));
    }
    Ok(variables)
}

fn variable(kind: VariableKind, name: &str, value: &str) -> Variable {
    Variable { kind, name: name.to_owned(), value: SecretText::new(value.to_owned()) }
}

/// Reads lines `NAME=VALUE`; a value is everything behind the first `=`, as it is. The error is the number of a line
/// without one.
fn parse_env(text: &str) -> Result<Vec<(&str, &str)>, usize> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    lines.map(|(number, line)| line.split_once('=').ok_or(number + 1)).collect()
}

fn open(path: &Path, bytes_max: u64) -> Result<String, BadFile> {
    let file = std::fs::File::open(path).map_err(|source| BadFile::Unreadable { path: path.to_owned(), source })?;
    text(path, file, bytes_max)
}

fn text(path: &Path, from: impl Read, bytes_max: u64) -> Result<String, BadFile> {
    let mut bytes = Vec::new();
    let read = from.take(bytes_max + 1).read_to_end(&mut bytes);
    let read = read.map_err(|source| BadFile::Unreadable { path: path.to_owned(), source })?;
    if u64::try_from(read).is_ok_and(|read| read > bytes_max) {
        return Err(BadFile::TooLong { path: path.to_owned(), bytes_max });
    }
    String::from_utf8(bytes).map_err(|_| BadFile::NotText { path: path.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn env_file_gives_names_and_values_as_they_are() {
        let text = "# a comment\nA=1\n\nB= \"two\" = 2 \r\nC=\n";
        assert_eq!(parse_env(text), Ok(vec![("A", "1"), ("B", " \"two\" = 2 "), ("C", "")]));
        assert_eq!(parse_env("A=1\nsecret-value\n"), Err(2));
    }

    #[test]
    fn file_that_gives_nothing_is_named_and_not_repeated() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, b"secret-\xff").unwrap();
        let error = open(&path, 100).unwrap_err().to_string();
        assert!(error.ends_with("file is not text in UTF-8") && !error.contains("secret"), "{error}");
        std::fs::write(&path, "x".repeat(101)).unwrap();
        assert!(open(&path, 100).unwrap_err().to_string().ends_with("longer than 100 bytes"));
        std::fs::write(&path, "x".repeat(100)).unwrap();
        assert_eq!(open(&path, 100).unwrap().len(), 100);
        assert!(matches!(open(&folder.path().join("none"), 1), Err(BadFile::Unreadable { .. })));
    }
}
