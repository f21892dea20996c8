//! Sealing of secrets that have to be read again: AES-256 in Galois/Counter mode (NIST SP 800-38D) with a random nonce for
//! each, and the row that they belong to as associated data, so that no sealed text opens in another row.
//!
//! The keys are in a file of their own (`store.key_file`), one in each line, and never in the database: a copy of the database
//! alone reveals no secrets. The first key seals and all of them open, so that a key can be exchanged while gateways run. A
//! known text sealed in the database verifies the keys.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, fs};

use arc_swap::ArcSwap;
use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::{digest, hkdf, hmac, rand};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::database::{About, Pool, sql};
use super::generations::GenerationSealer;
use super::{StoreError, shared_sign_ins};
use gateway_types::token::NoRandomness;

/// First byte of a sealed value: version of its format.
const VERSION: u8 = 1;

pub(super) const KEY_BYTES: usize = 32;

/// Longest key file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 4096;

/// The name of the known text's row.
const CHECK: &str = "check";

/// The known text.
const KNOWN: &[u8] = b"workspace gateway";

/// Most keys of a file.
pub(super) const KEYS_MAX: usize = 8;

/// One key, with what is derived from it.
struct SealKey {
    key: RandomizedNonceKey,
    /// Codes with a key derived from it.
    generations: GenerationSealer,
    /// Key of codes of sign-ins, derived from it too.
    sign_ins: hmac::Key,
    id: KeyId,
}

/// Name of a key, which does not lead to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyId([u8; 4]);

impl KeyId {
    fn of(key: &[u8; KEY_BYTES]) -> Self {
        let mut id = [0; 4];
        let digest = digest::digest(&digest::SHA256, &[b"name of a key".as_slice(), key].concat());
        id.iter_mut().zip(digest.as_ref()).for_each(|(to, from)| *to = *from);
        Self(id)
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

/// Keys of a file.
pub(super) struct Keys {
    /// The one that seals.
    first: SealKey,
    /// Others that open.
    more: Vec<SealKey>,
}

/// Seals with the first of its keys, and opens with all of them.
pub(super) struct Sealer {
    keys: ArcSwap<Keys>,
    /// The file that they are from.
    pub(super) file: Option<PathBuf>,
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

impl SealKey {
    fn new(key: &[u8; KEY_BYTES]) -> Result<Self, NoRandomness> {
        let generations = GenerationSealer::new(key).map_err(|_| NoRandomness)?;
        let sign_ins = derived(key, shared_sign_ins::PURPOSE).map_err(|_| NoRandomness)?;
        let id = KeyId::of(key);
        let key = RandomizedNonceKey::new(&AES_256_GCM, key).map_err(|_| NoRandomness)?;
        Ok(Self { key, generations, sign_ins, id })
    }

    fn seal(&self, belongs_to: &str, secret: &[u8]) -> Result<Vec<u8>, NoRandomness> {
        let mut text = secret.to_vec();
        let nonce = self.key.seal_in_place_append_tag(Aad::from(belongs_to), &mut text).map_err(|_| NoRandomness)?;
        Ok([&[VERSION], nonce.as_ref().as_slice(), &text].concat())
    }

    fn open(&self, belongs_to: &str, sealed: &[u8]) -> Option<Vec<u8>> {
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

impl Keys {
    fn new(file: &KeyFile) -> Result<Self, NoRandomness> {
        let more = file.more.iter().map(SealKey::new).collect::<Result<_, _>>()?;
        Ok(Self { first: SealKey::new(&file.first)?, more })
    }

    fn all(&self) -> impl Iterator<Item = &SealKey> {
        std::iter::once(&self.first).chain(&self.more)
    }

    /// Returns the names of the keys, that of the first one in front.
    pub(super) fn ids(&self) -> Vec<KeyId> {
        self.all().map(|key| key.id).collect()
    }

    /// Opens a value with any of the keys; returns which one it was.
    pub(super) fn open(&self, belongs_to: &str, sealed: &[u8]) -> Option<(Vec<u8>, KeyId)> {
        self.all().find_map(|key| Some((key.open(belongs_to, sealed)?, key.id)))
    }

    /// Seals with the first key.
    pub(super) fn seal(&self, belongs_to: &str, secret: &[u8]) -> Result<Vec<u8>, NoRandomness> {
        self.first.seal(belongs_to, secret)
    }

    /// Returns whether the known text of a database opens.
    fn opens_check(&self, sealed: &[u8]) -> bool {
        self.open(CHECK, sealed).is_some_and(|(known, _)| known == KNOWN)
    }
}

impl Sealer {
    fn new(keys: Keys, file: Option<PathBuf>) -> Self {
        Self { keys: ArcSwap::from_pointee(keys), file }
    }

    /// Returns the present keys.
    pub(super) fn keys(&self) -> Arc<Keys> {
        self.keys.load_full()
    }

    /// Takes other keys from now on.
    pub(super) fn exchange(&self, keys: Keys) {
        self.keys.store(Arc::new(keys));
    }

    /// Seals a secret for the row that `belongs_to` names. 2^32 secrets may be sealed with one key (NIST SP 800-38D, section
    /// 8.3).
    pub(super) fn seal(&self, belongs_to: &str, secret: &[u8]) -> Result<Vec<u8>, NoRandomness> {
        self.keys.load().seal(belongs_to, secret)
    }

    /// Opens a value sealed for that row; `None` for anything else.
    pub(super) fn open(&self, belongs_to: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        self.keys.load().open(belongs_to, sealed).map(|(secret, _)| secret)
    }

    /// Makes a code of generations with the first key.
    pub(super) fn code_of_generation(&self, make: impl FnOnce(&GenerationSealer) -> Vec<u8>) -> Vec<u8> {
        make(&self.keys.load().first.generations)
    }

    /// Checks a code of generations with each key, until one is right.
    pub(super) fn find_generation<T>(&self, check: impl Fn(&GenerationSealer) -> Option<T>) -> Option<T> {
        self.keys.load().all().find_map(|key| check(&key.generations))
    }

    /// Makes a code of sign-ins with the first key.
    pub(super) fn sign(&self, text: &[u8]) -> hmac::Tag {
        hmac::sign(&self.keys.load().first.sign_ins, text)
    }

    /// Returns whether `is_right` accepts the code of sign-ins that one of the keys makes.
    pub(super) fn any_signs(&self, text: &[u8], is_right: impl Fn(&hmac::Tag) -> bool) -> bool {
        self.keys.load().all().any(|key| is_right(&hmac::sign(&key.sign_ins, text)))
    }
}

/// Returns the sealer of this database. A database without sealed values gets the keys of the file, which is created with one
/// if it does not exist; without a file, the key is lost when the process ends.
pub(super) async fn unlock(writer: &Pool, file: Option<PathBuf>) -> Result<Sealer, StoreError> {
    let Some(path) = file else { return Ok(Sealer::new(Keys::new(&KeyFile::of(new_key()?))?, None)) };
    // Exclusive, so that of two processes that start at once without a key, one makes it and the other finds it.
    let mut transaction = writer.begin(About::Seal).await?;
    let statement = sql("SELECT sealed FROM seals WHERE name = $1").bind(CHECK);
    if let Some(row) = statement.fetch_optional(&mut transaction).await? {
        let keys = present_keys(&path)?;
        let is_right = keys.opens_check(row.get("sealed")?);
        return if is_right { Ok(Sealer::new(keys, Some(path))) } else { Err(StoreError::KeyWrong { path }) };
    }
    let file = match KeyFile::read(&path)? {
        Some(file) => file,
        None => make_key(&path)?,
    };
    let keys = Keys::new(&file)?;
    let check = keys.seal(CHECK, KNOWN)?;
    let statement = sql("INSERT INTO seals (name, sealed) VALUES ($1, $2)").bind(CHECK).bind(check.as_slice());
    statement.execute(&mut transaction).await?;
    transaction.commit().await?;
    Ok(Sealer::new(keys, Some(path)))
}

/// Reads the keys of a file that has to be there.
pub(super) fn present_keys(path: &Path) -> Result<Keys, StoreError> {
    let file = KeyFile::read(path)?.ok_or_else(|| StoreError::KeyMissing { path: path.to_owned() })?;
    Ok(Keys::new(&file)?)
}

/// Returns whether the keys open the known text of a database.
pub(super) async fn fit(pool: &Pool, keys: &Keys) -> Result<bool, StoreError> {
    let row = sql("SELECT sealed FROM seals WHERE name = $1").bind(CHECK).fetch_optional(pool).await?;
    row.map_or(Ok(true), |row| Ok(keys.opens_check(row.get("sealed")?)))
}

/// Returns the key that the known text of a database is sealed with.
pub(super) async fn key_of_check(pool: &Pool, keys: &Keys) -> Result<Option<KeyId>, StoreError> {
    let row = sql("SELECT sealed FROM seals WHERE name = $1").bind(CHECK).fetch_optional(pool).await?;
    let Some(row) = row else { return Ok(None) };
    Ok(keys.open(CHECK, row.get("sealed")?).map(|(_, key)| key))
}

/// Seals the known text with the first key.
pub(super) async fn reseal_check(writer: &Pool, keys: &Keys) -> Result<(), StoreError> {
    let check = keys.seal(CHECK, KNOWN)?;
    let statement = sql("UPDATE seals SET sealed = $1 WHERE name = $2").bind(check.as_slice()).bind(CHECK);
    let mut transaction = writer.begin(About::Seal).await?;
    statement.execute(&mut transaction).await?;
    transaction.commit().await
}

/// The keys in a file's text.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct KeyFile {
    pub(super) first: [u8; KEY_BYTES],
    pub(super) more: Vec<[u8; KEY_BYTES]>,
}

impl KeyFile {
    fn of(first: [u8; KEY_BYTES]) -> Self {
        Self { first, more: Vec::new() }
    }

    /// Reads a file; `None` if there is none.
    pub(super) fn read(path: &Path) -> Result<Option<Self>, StoreError> {
        let failed = |error| StoreError::KeyFile { path: path.to_owned(), error };
        let text = match fs::metadata(path) {
            Ok(file) if file.len() <= FILE_BYTES_MAX => fs::read(path).map_err(failed)?,
            Ok(_) => Vec::new(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let wrong = |why| failed(io::Error::new(io::ErrorKind::InvalidData, why));
        Self::parse(&text).map(Some).map_err(wrong)
    }

    /// Reads a text: a key in each line.
    pub(super) fn parse(text: &[u8]) -> Result<Self, &'static str> {
        const WRONG: &str = "it has to hold 32 bytes in base64, for each key a line";
        let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
        let mut keys = Vec::new();
        for line in lines {
            let key: [u8; KEY_BYTES] = STANDARD.decode(line).ok().and_then(|key| key.try_into().ok()).ok_or(WRONG)?;
            if keys.contains(&key) {
                return Err("it has the same key twice");
            }
            keys.push(key);
        }
        if keys.len() > KEYS_MAX {
            return Err("it has more than 8 keys");
        }
        let mut keys = keys.into_iter();
        Ok(Self { first: keys.next().ok_or(WRONG)?, more: keys.collect() })
    }

    /// Returns its text.
    pub(super) fn text(&self) -> String {
        let all = std::iter::once(&self.first).chain(&self.more);
        all.map(|key| STANDARD.encode(key) + "\n").collect()
    }

    /// Returns the names of the keys, that of the first one in front.
    pub(super) fn ids(&self) -> Vec<KeyId> {
        std::iter::once(&self.first).chain(&self.more).map(KeyId::of).collect()
    }
}

pub(super) fn new_key() -> Result<[u8; KEY_BYTES], NoRandomness> {
    let mut key = [0; KEY_BYTES];
    rand::fill(&mut key).map_err(|_| NoRandomness)?;
    Ok(key)
}

/// Makes a key and its file, which only the owner can read. Another process that makes the same file at once wins: an
/// existing file is never replaced.
fn make_key(path: &Path) -> Result<KeyFile, StoreError> {
    let file = KeyFile::of(new_key()?);
    match write_private(path, file.text().as_bytes(), Target::New) {
        Ok(()) => Ok(file),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            KeyFile::read(path)?.ok_or_else(|| StoreError::KeyMissing { path: path.to_owned() })
        }
        Err(error) => Err(StoreError::KeyFile { path: path.to_owned(), error }),
    }
}

/// Whether a file may be there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// It must not.
    New,
    /// It is replaced, and the new one has the same owner and group.
    Replaced,
}

/// Writes a file that only the owner can read, atomically: half a key would be taken for a wrong one.
pub(super) fn write_private(path: &Path, contents: &[u8], target: Target) -> io::Result<()> {
    let mut half = path.as_os_str().to_owned();
    half.push(format!(".{}.new", std::process::id()));
    let half = PathBuf::from(half);
    let written = (|| {
        // The folder may be another user's: what is at this name, a link too, is neither followed nor given a new owner.
        match fs::remove_file(&half) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&half)?;
        file.write_all(contents)?;
        file.sync_all()?;
        match target {
            Target::New => fs::hard_link(&half, path),
            Target::Replaced => {
                #[cfg(unix)]
                if let Ok(before) = fs::metadata(path) {
                    use std::os::unix::fs::MetadataExt;
                    let now = file.metadata()?;
                    if (now.uid(), now.gid()) != (before.uid(), before.gid()) {
                        std::os::unix::fs::fchown(&file, Some(before.uid()), Some(before.gid()))?;
                    }
                }
                fs::rename(&half, path)
            }
        }
    })();
    fs::remove_file(&half).unwrap_or_default();
    written
}

#[cfg(test)]
mod tests;
