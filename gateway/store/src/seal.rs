//! Sealing of secrets that have to be read again: AES-256 in Galois/Counter mode (NIST SP 800-38D) with a random nonce for
//! each, and the row that they belong to as associated data, so that no sealed text opens in another row.
//!
//! The key is in a file of its own (`store.key_file`) and never in the database: a copy of the database alone reveals
//! no secrets. A known text sealed in the database verifies the key.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::{fmt, fs};

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::{hkdf, hmac, rand};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::database::{About, Pool, sql};
use super::generations::GenerationSealer;
use super::{StoreError, shared_sign_ins};
use gateway_types::token::NoRandomness;

/// First byte of a sealed value: version of its format.
const VERSION: u8 = 1;

const KEY_BYTES: usize = 32;

/// Longest key file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 4096;

/// The name of the known text's row.
const CHECK: &str = "check";

/// The known text.
const KNOWN: &[u8] = b"workspace gateway";

/// Seals and opens with one key.
pub(super) struct Sealer {
    key: RandomizedNonceKey,
    /// Codes with a key derived from it.
    pub(super) generations: GenerationSealer,
    /// Key of codes of sign-ins, derived from it too.
    pub(super) sign_ins: hmac::Key,
}

/// Derives the key of codes for one purpose from that of the store (HKDF, RFC 5869).
pub(super) fn derived(key: &[u8], purpose: &[u8]) -> Result<hmac::Key, Unspecified> {
    let derived = hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(key);
    Ok(hmac::Key::from(derived.expand(&[purpose], hmac::HMAC_SHA256)?))
}

impl fmt::Debug for Sealer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Sealer(..)")
    }
}

impl Sealer {
    fn new(key: &[u8; KEY_BYTES]) -> Result<Self, NoRandomness> {
        let generations = GenerationSealer::new(key).map_err(|_| NoRandomness)?;
        let sign_ins = derived(key, shared_sign_ins::PURPOSE).map_err(|_| NoRandomness)?;
        let key = RandomizedNonceKey::new(&AES_256_GCM, key).map_err(|_| NoRandomness)?;
        Ok(Self { key, generations, sign_ins })
    }

    /// Seals a secret for the row that `belongs_to` names. 2^32 secrets may be sealed with one key (NIST SP 800-38D, section
    /// 8.3).
    pub(super) fn seal(&self, belongs_to: &str, secret: &[u8]) -> Result<Vec<u8>, NoRandomness> {
        let mut text = secret.to_vec();
        let nonce = self.key.seal_in_place_append_tag(Aad::from(belongs_to), &mut text).map_err(|_| NoRandomness)?;
        Ok([&[VERSION], nonce.as_ref().as_slice(), &text].concat())
    }

    /// Opens a value sealed for that row; `None` for anything else.
    pub(super) fn open(&self, belongs_to: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let (version, rest) = sealed.split_first()?;
        let (nonce, text) = rest.split_first_chunk::<NONCE_LEN>()?;
        if *version != VERSION {
            return None;
        }
        let mut text = text.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        Some(self.key.open_in_place(nonce, Aad::from(belongs_to), &mut text).ok()?.to_vec())
    }
}

/// Returns the sealer of this database. A database without sealed values gets the key of the file, which is created if
/// it does not exist; without a file, the key is lost when the process ends.
pub(super) async fn unlock(writer: &Pool, file: Option<PathBuf>) -> Result<Sealer, StoreError> {
    let Some(path) = file else { return Ok(Sealer::new(&new_key()?)?) };
    // Exclusive, so that of two processes that start at once without a key, one makes it and the other finds it.
    let mut transaction = writer.begin(About::Seal).await?;
    let statement = sql("SELECT sealed FROM seals WHERE name = $1").bind(CHECK);
    if let Some(row) = statement.fetch_optional(&mut transaction).await? {
        let Some(key) = read_key(&path)? else { return Err(StoreError::KeyMissing { path }) };
        let sealer = Sealer::new(&key)?;
        return match sealer.open(CHECK, row.get("sealed")?) {
            Some(known) if known == KNOWN => Ok(sealer),
            Some(_) | None => Err(StoreError::KeyWrong { path }),
        };
    }
    let key = match read_key(&path)? {
        Some(key) => key,
        None => make_key(&path)?,
    };
    let sealer = Sealer::new(&key)?;
    let check = sealer.seal(CHECK, KNOWN)?;
    let statement = sql("INSERT INTO seals (name, sealed) VALUES ($1, $2)").bind(CHECK).bind(check.as_slice());
    statement.execute(&mut transaction).await?;
    transaction.commit().await?;
    Ok(sealer)
}

fn new_key() -> Result<[u8; KEY_BYTES], NoRandomness> {
    let mut key = [0; KEY_BYTES];
    rand::fill(&mut key).map_err(|_| NoRandomness)?;
    Ok(key)
}

/// Reads a key; `None` if there is no file.
fn read_key(path: &Path) -> Result<Option<[u8; KEY_BYTES]>, StoreError> {
    let failed = |error| StoreError::KeyFile { path: path.to_owned(), error };
    let text = match fs::metadata(path) {
        Ok(file) if file.len() <= FILE_BYTES_MAX => fs::read(path).map_err(failed)?,
        Ok(_) => Vec::new(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let key = STANDARD.decode(text.trim_ascii()).ok().and_then(|key| key.try_into().ok());
    let bad = || failed(io::Error::new(io::ErrorKind::InvalidData, "it has to hold 32 bytes in base64"));
    Ok(Some(key.ok_or_else(bad)?))
}

/// Makes a key and its file, which only the owner can read. Another process that makes the same file at once wins: an
/// existing file is never replaced.
fn make_key(path: &Path) -> Result<[u8; KEY_BYTES], StoreError> {
    let key = new_key()?;
    match write_key(path, &key) {
        Ok(()) => Ok(key),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            read_key(path)?.ok_or_else(|| StoreError::KeyMissing { path: path.to_owned() })
        }
        Err(error) => Err(StoreError::KeyFile { path: path.to_owned(), error }),
    }
}

/// Writes the file atomically: half a key would be taken for a wrong one.
fn write_key(path: &Path, key: &[u8; KEY_BYTES]) -> io::Result<()> {
    let mut half = path.as_os_str().to_owned();
    half.push(format!(".{}.new", std::process::id()));
    let half = PathBuf::from(half);
    let written = (|| {
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&half)?;
        writeln!(file, "{}", STANDARD.encode(key))?;
        file.sync_all()?;
        fs::hard_link(&half, path)
    })();
    fs::remove_file(&half).unwrap_or_default();
    written
}

#[cfg(test)]
mod tests;
