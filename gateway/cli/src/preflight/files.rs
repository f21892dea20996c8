//! Checks of access to a file or folder. Each error names the path.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use rustix::fs::{Access, access};

/// Longest file with a secret, in bytes.
const SECRET_BYTES_MAX: u64 = 16 * 1024;

type Opened = Result<(), String>;

fn wrong(path: &Path, cannot: &str, error: impl Into<io::Error>) -> String {
    let error: io::Error = error.into();
    format!("{} cannot be {cannot}: {error}", path.display())
}

/// Checks a file that is read.
pub(super) fn readable(path: &Path) -> Opened {
    let opened = File::open(path).and_then(|mut file| file.read(&mut [0]).map(drop));
    opened.map_err(|error| wrong(path, "read", error))
}

/// Checks a file with a secret: it is one line of text, of which nothing is repeated.
pub(super) fn secret(path: &Path) -> Opened {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(SECRET_BYTES_MAX).read_to_string(&mut text));
    read.map_err(|error| wrong(path, "read", error))?;
    let line = text.trim_end_matches(['\r', '\n']);
    let is_secret = !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_graphic());
    if is_secret {
        Ok(())
    } else {
        Err(format!("{} holds no secret: one line of printable text is needed", path.display()))
    }
}

/// Checks a folder that is read.
pub(super) fn folder(path: &Path) -> Opened {
    fs::read_dir(path).map(drop).map_err(|error| wrong(path, "read", error))
}

/// Checks a folder in which files are made.
fn writable_folder(path: &Path) -> Opened {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    folder(path)?;
    access(path, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| wrong(path, "written into", error))
}

fn parent_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

/// Checks a file that is written at its end, or made.
pub(super) fn appendable(path: &Path) -> Opened {
    match fs::metadata(path) {
        Ok(_) => access(path, Access::WRITE_OK).map_err(|error| wrong(path, "written", error)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => writable_folder(parent_of(path)),
        Err(error) => Err(wrong(path, "written", error)),
    }
}

/// Checks the file of a database: its folder has to be writable too, for the files beside it.
pub(super) fn database(path: &Path) -> Opened {
    appendable(path)?;
    writable_folder(parent_of(path))
}

/// Checks a file that is read, or made where there is none.
pub(super) fn made_or_readable(path: &Path) -> Opened {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => writable_folder(parent_of(path)),
        Ok(_) | Err(_) => readable(path),
    }
}

/// Checks a folder that is made if it is not there.
pub(super) fn makeable(path: &Path) -> Opened {
    let there = path.ancestors().find(|folder| folder.as_os_str().is_empty() || folder.exists());
    writable_folder(there.unwrap_or(path))
}

/// Checks a program: one with a slash is a file, any other is searched for in `PATH`.
pub(super) fn program(path: &Path) -> Opened {
    let can_run = |path: &Path| path.is_file() && access(path, Access::EXEC_OK).is_ok();
    if path.components().count() > 1 {
        let found = access(path, Access::EXEC_OK).map_err(|error| wrong(path, "run", error));
        return found
            .and_then(|()| if path.is_file() { Ok(()) } else { Err(format!("{} is no program", path.display())) });
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let is_found = std::env::split_paths(&paths).any(|folder| can_run(&folder.join(path)));
    if is_found { Ok(()) } else { Err(format!("{} is not among the programs of PATH", path.display())) }
}
