//! Log of a run, within a bound: the newest output, in two files.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::folder::private;

const CURRENT: &str = "log";
const BEFORE: &str = "log.before";

/// Most bytes of both files. A log that is longer loses its beginning.
pub(super) const LOG_BYTES_MAX: u64 = 4 << 20;

/// The log of a run that is under way.
#[derive(Debug)]
pub(super) struct Log {
    folder: PathBuf,
    file: File,
    bytes: u64,
    bytes_max: u64,
}

impl Log {
    /// Begins a log in a folder, and replaces an earlier one.
    pub(super) fn begin(folder: &Path, bytes_max: u64) -> io::Result<Self> {
        match fs::remove_file(folder.join(BEFORE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let file = private().create(true).truncate(true).open(folder.join(CURRENT))?;
        Ok(Self { folder: folder.to_owned(), file, bytes: 0, bytes_max })
    }

    /// Appends to the log.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if self.bytes > 0 && self.bytes.saturating_add(length) > self.bytes_max / 2 {
            fs::rename(self.folder.join(CURRENT), self.folder.join(BEFORE))?;
            self.file = private().create(true).truncate(true).open(self.folder.join(CURRENT))?;
            self.bytes = 0;
        }
        self.bytes = self.bytes.saturating_add(length);
        self.file.write_all(bytes)
    }
}

/// Returns the last bytes of the log in a folder, and whether there are more before them.
pub(super) fn end(folder: &Path, bytes_max: u64) -> io::Result<(Vec<u8>, bool)> {
    let (current, is_cut) = tail(&folder.join(CURRENT), bytes_max)?;
    let left = bytes_max.saturating_sub(u64::try_from(current.len()).unwrap_or(u64::MAX));
    if is_cut || left == 0 {
        return Ok((current, true));
    }
    // An earlier part may have been dropped before that.
    let (mut before, _) = tail(&folder.join(BEFORE), left)?;
    let is_cut = !before.is_empty();
    before.extend_from_slice(&current);
    Ok((before, is_cut))
}

fn tail(path: &Path, bytes_max: u64) -> io::Result<(Vec<u8>, bool)> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), false)),
        Err(error) => return Err(error),
    };
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(bytes_max)))?;
    let mut bytes = Vec::new();
    file.take(bytes_max).read_to_end(&mut bytes)?;
    Ok((bytes, length > bytes_max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_keeps_the_newest_within_its_bound() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = Log::begin(folder.path(), 100).unwrap();
        assert_eq!(end(folder.path(), 100).unwrap(), (Vec::new(), false));
        let lines: Vec<String> = (0..100).map(|number| format!("line {number:04}\n")).collect();
        for line in &lines {
            log.write(line.as_bytes()).unwrap();
            let bytes =
                ["log", "log.before"].map(|name| fs::metadata(folder.path().join(name)).map_or(0, |file| file.len()));
            assert!(bytes.iter().sum::<u64>() <= 100, "{bytes:?}");
        }
        let (kept, is_cut) = end(folder.path(), 1000).unwrap();
        assert!(is_cut && lines.concat().ends_with(std::str::from_utf8(&kept).unwrap()), "{kept:?}");
        assert!(kept.len() > 50, "at least a half is kept");
        assert_eq!(end(folder.path(), 4).unwrap(), (b"099\n".to_vec(), true));
        Log::begin(folder.path(), 100).unwrap();
        assert_eq!(
            end(folder.path(), 100).unwrap(),
            (Vec::new(), false),
            "a run does not show the log of the one before"
        );
    }
}
