//! The file of a backup: a head that says what is in it, the parts, and a checksum over all of it.
//!
//! ```text
//! 16 bytes   "gateway backup\r\n"
//!  4 bytes   version of the format, big-endian
//!  4 bytes   length of the head, big-endian
//!            the head, JSON: program, time, schema, lengths of the parts
//!            the database, if there is one
//!            the keys' file, if it is there
//! 32 bytes   SHA-256 of all that is before
//! ```

use std::io::{self, Read, Write};

use aws_lc_rs::digest::{Context, SHA256};
use serde_json::{Value, json};
use thiserror::Error;

/// First bytes. A transfer as text would change the last two.
const MAGIC: &[u8; 16] = b"gateway backup\r\n";

/// Version of the format that is written, and the newest that is read.
const VERSION: u32 = 1;

/// Longest head that is read, in bytes.
const HEAD_BYTES_MAX: u32 = 64 * 1024;

/// Longest file of keys, in bytes.
const KEYS_BYTES_MAX: u64 = 4096;

/// Length of the checksum, in bytes.
const SUM_BYTES: usize = 32;

/// Bytes that are copied at once.
const COPY_BYTES: usize = 64 * 1024;

/// What a backup says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupHead {
    /// Version of the program that made it.
    pub program: String,
    /// Time at which it was made, in seconds since 1970.
    pub made_at: i64,
    /// Schema of the database; `None` if there is no database in it.
    pub schema: Option<i64>,
    /// Length of the database, in bytes; 0 without one.
    pub database_bytes: u64,
    /// Length of the keys' file, in bytes; 0 without it.
    pub keys_bytes: u64,
}

/// Reason why a file cannot be used as a backup.
#[derive(Debug, Error)]
pub enum BadBackup {
    /// It begins otherwise.
    #[error("it is no backup of a gateway, or was changed on its way, as by a transfer as text")]
    Foreign,
    /// A later program made it.
    #[error(
        "it has version {found} of the format, and this program reads up to {VERSION}: use the program that made it"
    )]
    Version {
        /// Its version.
        found: u32,
    },
    /// It ends too soon.
    #[error("it is cut off: a part of it is missing")]
    Truncated,
    /// The checksum is not that of the contents.
    #[error("it is damaged: its checksum is another one")]
    Damaged,
    /// It cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Hashes what passes.
struct Summed<T> {
    to: T,
    sum: Context,
}

impl<W: Write> Summed<W> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sum.update(bytes);
        self.to.write_all(bytes)
    }
}

impl<R: Read> Summed<R> {
    fn take<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH], BadBackup> {
        let mut bytes = [0; LENGTH];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), BadBackup> {
        self.to.read_exact(bytes).map_err(cut_off)?;
        self.sum.update(bytes);
        Ok(())
    }
}

fn cut_off(error: io::Error) -> BadBackup {
    if error.kind() == io::ErrorKind::UnexpectedEof { BadBackup::Truncated } else { BadBackup::Io(error) }
}

impl BackupHead {
    fn to_json(&self) -> Value {
        json!({
            "program": self.program,
            "made_at": self.made_at,
            "schema": self.schema,
            "database_bytes": self.database_bytes,
            "keys_bytes": self.keys_bytes,
        })
    }

    fn of_json(text: &[u8]) -> Option<Self> {
        let head: Value = serde_json::from_slice(text).ok()?;
        Some(Self {
            program: head.get("program")?.as_str()?.to_owned(),
            made_at: head.get("made_at")?.as_i64()?,
            schema: head.get("schema")?.as_i64(),
            database_bytes: head.get("database_bytes")?.as_u64()?,
            keys_bytes: head.get("keys_bytes")?.as_u64().filter(|bytes| *bytes <= KEYS_BYTES_MAX)?,
        })
    }
}

/// Writes a backup. `database` has as many bytes as the head says.
///
/// # Errors
/// A failed read or write.
pub(super) fn write(to: impl Write, head: &BackupHead, mut database: impl Read, keys: &[u8]) -> io::Result<()> {
    let mut out = Summed { to, sum: Context::new(&SHA256) };
    let text = head.to_json().to_string();
    let length = u32::try_from(text.len()).map_err(io::Error::other)?;
    out.put(MAGIC)?;
    out.put(&VERSION.to_be_bytes())?;
    out.put(&length.to_be_bytes())?;
    out.put(text.as_bytes())?;
    let (mut left, mut buffer) = (head.database_bytes, vec![0; COPY_BYTES]);
    while left > 0 {
        let bytes = buffer.get_mut(..chunk(left)).unwrap_or_default();
        database.read_exact(bytes)?;
        out.put(bytes)?;
        left -= u64::try_from(bytes.len()).unwrap_or(left);
    }
    out.put(keys)?;
    let Summed { mut to, sum } = out;
    to.write_all(sum.finish().as_ref())?;
    to.flush()
}

/// Reads a backup whole, writes its database to `database`, and returns the head and the keys. What was written counts for nothing
/// if this fails.
///
/// # Errors
/// [`BadBackup`].
pub(super) fn read(from: impl Read, mut database: impl Write) -> Result<(BackupHead, Vec<u8>), BadBackup> {
    let mut input = Summed { to: from, sum: Context::new(&SHA256) };
    let magic: [u8; 16] =
        input.take().map_err(|bad| if matches!(bad, BadBackup::Truncated) { BadBackup::Foreign } else { bad })?;
    if magic != *MAGIC {
        return Err(BadBackup::Foreign);
    }
    let found = u32::from_be_bytes(input.take()?);
    if found != VERSION {
        return Err(BadBackup::Version { found });
    }
    let length = u32::from_be_bytes(input.take()?);
    if length > HEAD_BYTES_MAX {
        return Err(BadBackup::Damaged);
    }
    let mut text = vec![0; usize::try_from(length).unwrap_or_default()];
    input.fill(&mut text)?;
    let head = BackupHead::of_json(&text).ok_or(BadBackup::Damaged)?;
    let (mut left, mut buffer) = (head.database_bytes, vec![0; COPY_BYTES]);
    while left > 0 {
        let bytes = buffer.get_mut(..chunk(left)).unwrap_or_default();
        input.fill(bytes)?;
        database.write_all(bytes)?;
        left -= u64::try_from(bytes.len()).unwrap_or(left);
    }
    let mut keys = vec![0; usize::try_from(head.keys_bytes).unwrap_or_default()];
    input.fill(&mut keys)?;
    let Summed { to: mut rest, sum } = input;
    let mut stated = [0; SUM_BYTES];
    rest.read_exact(&mut stated).map_err(cut_off)?;
    if sum.finish().as_ref() != stated || rest.read(&mut [0])? != 0 {
        return Err(BadBackup::Damaged);
    }
    Ok((head, keys))
}

/// Returns how many of so many bytes are copied next.
fn chunk(left: u64) -> usize {
    usize::try_from(left).unwrap_or(COPY_BYTES).min(COPY_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(database: &[u8]) -> (BackupHead, Vec<u8>) {
        let head = BackupHead {
            program: "0.1.0".to_owned(),
            made_at: 1_800_000_000,
            schema: Some(25),
            database_bytes: u64::try_from(database.len()).unwrap(),
            keys_bytes: 5,
        };
        let mut file = Vec::new();
        write(&mut file, &head, database, b"keys\n").unwrap();
        (head, file)
    }

    #[test]
    fn what_was_written_is_read() {
        for length in [0, 1, COPY_BYTES - 1, COPY_BYTES, 3 * COPY_BYTES + 7] {
            let database: Vec<u8> = (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect();
            let (head, file) = sample(&database);
            let mut found = Vec::new();
            let (read_head, keys) = read(file.as_slice(), &mut found).unwrap();
            assert_eq!((read_head, keys.as_slice(), found), (head, b"keys\n".as_slice(), database));
        }
    }

    #[test]
    fn file_that_is_cut_at_any_byte_is_refused() {
        let (_, file) = sample(b"database");
        for length in 0..file.len() {
            let bad = read(&file[..length], io::sink()).unwrap_err();
            let expected = if length < MAGIC.len() { "no backup of a gateway" } else { "cut off" };
            assert!(bad.to_string().contains(expected), "{length}: {bad}");
        }
        assert!(matches!(read([&file[..], &[0]].concat().as_slice(), io::sink()), Err(BadBackup::Damaged)));
    }

    #[test]
    fn file_with_any_bit_changed_is_refused() {
        let (_, file) = sample(b"database");
        for bit in 0..file.len() * 8 {
            let mut changed = file.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(read(changed.as_slice(), io::sink()).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn file_of_another_program_or_a_later_one_is_named() {
        assert!(matches!(read(b"SQLite format 3\0 and so on".as_slice(), io::sink()), Err(BadBackup::Foreign)));
        let (_, mut file) = sample(b"database");
        file[19] = 2;
        assert!(matches!(read(file.as_slice(), io::sink()), Err(BadBackup::Version { found: 2 })));
    }
}
