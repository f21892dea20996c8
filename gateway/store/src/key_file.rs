//! Changes of the file of keys (`store.key_file`) by the operator's commands. A running gateway reads it when it is asked to.

use std::path::Path;

use super::seal::{KEYS_MAX, KeyFile, Target, new_key, write_private};
use super::{KeyId, StoreError};

/// Change of the file of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyFileChange {
    /// A new key, behind the others: it opens, and seals nothing yet.
    Add,
    /// The last key becomes the first, which seals.
    Promote,
    /// All keys but the first go.
    DropOthers,
}

/// Changes a file of keys, and returns the names of its keys, that of the one that seals in front. The old file is replaced at once
/// or not at all. Whether dropped keys are still needed is for the caller to find out.
///
/// # Errors
/// [`StoreError::KeyMissing`] or [`StoreError::KeyFile`], and [`StoreError::Randomness`] for a new key.
pub fn change_key_file(path: &Path, change: KeyFileChange) -> Result<Vec<KeyId>, StoreError> {
    let failed = |error| StoreError::KeyFile { path: path.to_owned(), error };
    let mut file = KeyFile::read(path)?.ok_or_else(|| StoreError::KeyMissing { path: path.to_owned() })?;
    match change {
        KeyFileChange::Add if file.more.len() + 1 >= KEYS_MAX => {
            return Err(failed(std::io::Error::other("it has 8 keys, and no more fit in: drop the old ones first")));
        }
        KeyFileChange::Add => file.more.push(new_key()?),
        KeyFileChange::Promote => {
            if let Some(last) = file.more.pop() {
                file.more.insert(0, std::mem::replace(&mut file.first, last));
            }
        }
        KeyFileChange::DropOthers => file.more.clear(),
    }
    // The file itself, where a link leads to it.
    let real = path.canonicalize().map_err(failed)?;
    write_private(&real, file.text().as_bytes(), Target::Replaced).map_err(failed)?;
    Ok(file.ids())
}

/// Returns the names of a file's keys, that of the one that seals in front.
///
/// # Errors
/// [`StoreError::KeyMissing`] or [`StoreError::KeyFile`].
pub fn key_file_ids(path: &Path) -> Result<Vec<KeyId>, StoreError> {
    Ok(KeyFile::read(path)?.ok_or_else(|| StoreError::KeyMissing { path: path.to_owned() })?.ids())
}
