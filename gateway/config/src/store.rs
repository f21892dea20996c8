//! Keys of `store`: the database, and the files with its secrets.

use std::path::PathBuf;
use std::time::Duration;

use super::DEFAULT_DATABASE;
use super::keys::section;
use super::reader::Reader;
use super::value::{DURATION, FILE_PATH, STORE_URL, StoreUrl};

/// The key's file when none is named.
const KEY_FILE: &str = "gateway.key";

section! {
    /// The database.
    pub struct StoreConfig, STORE: StoreKeys below "store." {
        /// The database: one file with SQLite, or PostgreSQL 11 or newer (`sslmode`, `sslrootcert`, `sslcert`, `sslkey`
        /// and others behind `?`).
        url: StoreUrl = STORE_URL, or StoreUrl::SqliteFile(DEFAULT_DATABASE.into());
        /// File with the password of PostgreSQL, if the URL has none.
        password_file: PathBuf = FILE_PATH, optional;
        /// File with the keys of secrets in the database, one in each line: the first seals, all open (`gateway key`). Made
        /// with one key at the first start. `gateway.key` beside the database's file, or beside this configuration for
        /// PostgreSQL, unless set. Back it up (`gateway backup`).
        key_file: PathBuf = FILE_PATH, optional;
        /// Time for which the name of a deleted workspace is held back for its owner: browsers keep for long what its
        /// pages stored, and another name is easily found.
        name_hold: Duration = DURATION, or Duration::from_hours(90 * 24);
        /// Longest outage of the database in which users, tokens and agents that were known before are still let in.
        /// Those that were never looked up are refused at once.
        outage_max: Duration = DURATION, or Duration::from_hours(1), in Duration::ZERO..=Duration::from_hours(24);
    } also {}
}

impl StoreConfig {
    /// Returns the configuration in which only the URL is set.
    #[must_use]
    pub fn at(url: StoreUrl) -> Self {
        let (name_hold, outage_max) = (STORE.name_hold.default(), STORE.outage_max.default());
        Self { url, password_file: None, key_file: None, name_hold, outage_max }
    }

    /// Returns the path of the key: the file that is named, else `gateway.key` beside the database's file. For a
    /// database on a server that is beside the configuration's file, or in the working directory without one. `None`
    /// for a database in memory, whose key is forgotten with it.
    #[must_use]
    pub fn key_file(&self) -> Option<PathBuf> {
        match (&self.url, &self.key_file) {
            (StoreUrl::SqliteMemory, _) => None,
            (StoreUrl::SqliteFile(_) | StoreUrl::Postgres(_), Some(path)) => Some(path.clone()),
            (StoreUrl::SqliteFile(path), None) => Some(path.with_file_name(KEY_FILE)),
            (StoreUrl::Postgres(_), None) => Some(PathBuf::from(KEY_FILE)),
        }
    }
}

/// Reads the keys.
pub(super) fn read(reader: &mut Reader) -> StoreConfig {
    let url = reader.take(&STORE.url);
    let password_file = reader.take(&STORE.password_file);
    let key_file = reader.take(&STORE.key_file);
    // A database on a server has no folder of its own to keep the key in.
    let beside_file = || reader.folder().map(|folder| folder.join(KEY_FILE));
    let key_file = key_file.or_else(|| matches!(url, StoreUrl::Postgres(_)).then(beside_file).flatten());
    if password_file.is_some() && reader.is_sound(&[&STORE.url.name]) {
        match &url {
            StoreUrl::Postgres(url) if url.has_password() => {
                let wrong = format!("is set together with a password in {}; one is enough", STORE.url);
                reader.object(&STORE.password_file, wrong);
            }
            StoreUrl::Postgres(_) => {}
            StoreUrl::SqliteFile(_) | StoreUrl::SqliteMemory => {
                reader.object(&STORE.password_file, format!("has no effect: {} is not on a server", STORE.url));
            }
        }
    }
    let name_hold = reader.take(&STORE.name_hold);
    let outage_max = reader.take(&STORE.outage_max);
    StoreConfig { url, password_file, key_file, name_hold, outage_max }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::{BadConfig, Config};

    fn load(pairs: &[(&str, &str)]) -> Result<Config, BadConfig> {
        let env: BTreeMap<String, String> =
            pairs.iter().map(|(key, value)| (format!("GATEWAY_STORE__{key}"), (*value).to_owned())).collect();
        Config::load(None, &env)
    }

    #[test]
    fn key_is_beside_the_file_or_where_it_is_said_to_be() {
        let key_of = |pairs: &[(&str, &str)]| load(pairs).unwrap().store.key_file();
        assert_eq!(key_of(&[]), Some("gateway.key".into()));
        assert_eq!(key_of(&[("URL", "sqlite:///var/lib/g.db")]), Some("/var/lib/gateway.key".into()));
        assert_eq!(key_of(&[("URL", "sqlite::memory:")]), None);
        assert_eq!(key_of(&[("URL", "postgres://h/db")]), Some("gateway.key".into()));
        assert_eq!(key_of(&[("URL", "postgres://h/db"), ("KEY_FILE", "/run/k")]), Some("/run/k".into()));
    }

    #[test]
    fn password_of_the_server_is_masked_and_has_one_place() {
        let config = load(&[("URL", "postgres://u:hunter2@h/db")]).unwrap();
        let row = config.effective().iter().find(|row| row.key == "store.url").unwrap();
        assert_eq!(row.value.as_deref(), Some("postgres://u:********@h/db"));
        assert!(!format!("{config:?}").contains("hunter2"));
        assert!(load(&[("URL", "postgres://u@h/db"), ("PASSWORD_FILE", "p")]).is_ok());
        let both = load(&[("URL", "postgres://u:hunter2@h/db"), ("PASSWORD_FILE", "p")]).unwrap_err().to_string();
        assert!(both.contains("one is enough") && !both.contains("hunter2"), "{both}");
        let unused = load(&[("PASSWORD_FILE", "p")]).unwrap_err().to_string();
        assert!(unused.contains("has no effect"), "{unused}");
        let slip = load(&[("URL", "postgres://u:hunter2@h/db?sslmode=on")]).unwrap_err().to_string();
        assert!(slip.contains("sslmode has to be") && !slip.contains("hunter2"), "{slip}");
    }
}
