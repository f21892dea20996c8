//! Keys of `store`: the database, and the files with its secrets.

use std::path::PathBuf;
use std::time::Duration;

use super::DEFAULT_DATABASE;
use super::reader::Reader;
use super::value::{DURATION, STORE_URL, StoreUrl};

/// Default of `store.outage_max`: during a longer outage of the database, no user gets in any more.
const OUTAGE_MAX: Duration = Duration::from_secs(60 * 60);

/// The key's file when none is named.
const KEY_FILE: &str = "gateway.key";

/// The database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreConfig {
    /// The database (`store.url`).
    pub url: StoreUrl,
    /// The file that holds the password for a server, if the URL does not (`store.password_file`).
    pub password_file: Option<PathBuf>,
    /// The file with the key that seals secrets in the database (`store.key_file`); `None` is the one of
    /// [`StoreConfig::key_file`].
    pub key_file: Option<PathBuf>,
    /// Time for which the name of a deleted workspace is held back for its owner (`store.name_hold`); zero for not at
    /// all.
    pub name_hold: Duration,
    /// Time for which earlier answers of the database count while it is away (`store.outage_max`).
    pub outage_max: Duration,
}

/// Default of `store.name_hold`: browsers keep what pages stored for long, and another name is easily found.
const NAME_HOLD: Duration = Duration::from_secs(90 * 24 * 60 * 60);

impl StoreConfig {
    /// Returns the configuration in which only the URL is set.
    #[must_use]
    pub fn at(url: StoreUrl) -> Self {
        Self { url, password_file: None, key_file: None, name_hold: NAME_HOLD, outage_max: OUTAGE_MAX }
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
    const PASSWORD_FILE: &str = "store.password_file";
    let default = StoreUrl::SqliteFile(PathBuf::from(DEFAULT_DATABASE));
    let url = reader.take_anchored("store.url", Some(default.clone()), &STORE_URL, |url, folder| url.anchored(folder));
    let url = url.unwrap_or(default);
    let password_file = reader.take_path(PASSWORD_FILE);
    let key_file = reader.take_path("store.key_file");
    // A database on a server has no folder of its own to keep the key in.
    let beside_file = || reader.folder().map(|folder| folder.join(KEY_FILE));
    let key_file = key_file.or_else(|| matches!(url, StoreUrl::Postgres(_)).then(beside_file).flatten());
    if password_file.is_some() && reader.is_sound(&["store.url"]) {
        match &url {
            StoreUrl::Postgres(url) if url.has_password() => {
                reader.object(PASSWORD_FILE, "is set together with a password in store.url; one is enough");
            }
            StoreUrl::Postgres(_) => {}
            StoreUrl::SqliteFile(_) | StoreUrl::SqliteMemory => {
                reader.object(PASSWORD_FILE, "has no effect: store.url is not on a server");
            }
        }
    }
    let name_hold = reader.take("store.name_hold", NAME_HOLD, &DURATION);
    let longest = Duration::from_secs(24 * 60 * 60);
    let outage_max = reader.take_within("store.outage_max", OUTAGE_MAX, Duration::ZERO..=longest, &DURATION);
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
