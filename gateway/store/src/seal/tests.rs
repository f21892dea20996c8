use super::*;
use crate::Store;
use gateway_config::StoreConfig;

fn sealer(key: u8) -> Sealer {
    sealer_of(key, &[])
}

fn sealer_of(first: u8, more: &[u8]) -> Sealer {
    let file = KeyFile { first: [first; KEY_BYTES], more: more.iter().map(|key| [*key; KEY_BYTES]).collect() };
    Sealer::new(Keys::new(&file).unwrap(), None)
}

#[test]
fn first_key_seals_and_all_keys_open() {
    let (old, both, new) = (sealer(1), sealer_of(2, &[1]), sealer(2));
    let by_old = old.seal("row", b"secret").unwrap();
    let by_both = both.seal("row", b"secret").unwrap();
    assert_eq!(both.open("row", &by_old).as_deref(), Some(&b"secret"[..]));
    assert_eq!((new.open("row", &by_old), old.open("row", &by_both)), (None, None));
    assert_eq!(new.open("row", &by_both).as_deref(), Some(&b"secret"[..]));
    assert!(both.any_signs(b"text", |tag| tag.as_ref() == old.sign(b"text").as_ref()));
    assert!(!new.any_signs(b"text", |tag| tag.as_ref() == old.sign(b"text").as_ref()));
    assert_eq!(both.sign(b"text").as_ref(), new.sign(b"text").as_ref());
}

#[test]
fn file_holds_a_key_in_each_line_and_each_key_once() {
    let file = KeyFile { first: [1; KEY_BYTES], more: vec![[2; KEY_BYTES], [3; KEY_BYTES]] };
    assert!(KeyFile::parse(file.text().as_bytes()).unwrap() == file);
    let spaced = file.text().replace('\n', "\r\n\r\n");
    assert!(KeyFile::parse(spaced.as_bytes()).unwrap() == file);
    let twice = file.text().repeat(2);
    assert!(KeyFile::parse(twice.as_bytes()).is_err());
    let many: String =
        (0..=KEYS_MAX).map(|key| STANDARD.encode([u8::try_from(key).unwrap(); KEY_BYTES]) + "\n").collect();
    assert!(KeyFile::parse(many.as_bytes()).is_err());
    for text in ["", "\n", "short", "aGFsZg==\n"] {
        assert!(KeyFile::parse(text.as_bytes()).is_err(), "{text:?}");
    }
}

#[test]
fn sealed_secret_opens_with_its_key_in_its_row_and_nowhere_else() {
    let one = sealer(1);
    let sealed = one.seal("row 1", b"hunter2").unwrap();
    assert_eq!(one.open("row 1", &sealed).as_deref(), Some(&b"hunter2"[..]));
    assert_eq!(one.open("row 2", &sealed), None);
    assert_eq!(sealer(2).open("row 1", &sealed), None);
    assert_ne!(one.seal("row 1", b"hunter2").unwrap(), sealed, "equal secrets do not look equal");
    assert!(!sealed.windows(7).any(|part| part == b"hunter2"));
    let empty = one.seal("row 1", b"").unwrap();
    assert_eq!(one.open("row 1", &empty).as_deref(), Some(&b""[..]));
}

#[test]
fn sealed_secret_that_was_changed_in_any_bit_does_not_open() {
    let one = sealer(1);
    let sealed = one.seal("row", b"secret").unwrap();
    for at in 0..sealed.len() * 8 {
        let mut changed = sealed.clone();
        changed[at / 8] ^= 1 << (at % 8);
        assert_eq!(one.open("row", &changed), None, "bit {at}");
    }
    for length in 0..sealed.len() {
        assert_eq!(one.open("row", &sealed[..length]), None, "cut at {length}");
    }
}

fn at(folder: &Path, database: &str, key: &str) -> StoreConfig {
    let url = format!("sqlite://{}", folder.join(database).display()).parse().unwrap();
    StoreConfig { key_file: Some(folder.join(key)), ..StoreConfig::at(url) }
}

#[tokio::test]
async fn new_database_gets_a_private_key_that_opens_it_again() {
    let folder = tempfile::tempdir().unwrap();
    let config = at(folder.path(), "gateway.db", "gateway.key");
    Store::open_with(&config).await.unwrap().close().await;
    let key = folder.path().join("gateway.key");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let before = fs::read(&key).unwrap();
    Store::open_with(&config).await.unwrap().close().await;
    assert_eq!(fs::read(&key).unwrap(), before);
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().ends_with(".new")), "{names:?}");
}

#[tokio::test]
async fn wrong_missing_or_broken_key_is_named_and_no_new_one_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let config = at(folder.path(), "gateway.db", "gateway.key");
    Store::open_with(&config).await.unwrap().close().await;
    let other = at(folder.path(), "gateway.db", "other.key");
    let missing = Store::open_with(&other).await.unwrap_err();
    assert!(
        matches!(&missing, StoreError::KeyMissing { path } if *path == folder.path().join("other.key")),
        "{missing:?}"
    );
    assert!(!folder.path().join("other.key").exists());
    // The key of another database.
    Store::open_with(&at(folder.path(), "other.db", "other.key")).await.unwrap().close().await;
    let wrong = Store::open_with(&other).await.unwrap_err();
    assert!(matches!(&wrong, StoreError::KeyWrong { path } if *path == folder.path().join("other.key")), "{wrong:?}");
    for text in ["", "short", "hunter2hunter2hunter2hunter2hunter2hunter2hunter2"] {
        fs::write(folder.path().join("other.key"), text).unwrap();
        let broken = Store::open_with(&other).await.unwrap_err();
        assert!(matches!(broken, StoreError::KeyFile { .. }), "{broken:?}");
        assert!(!format!("{broken:?}").contains("hunter2"));
    }
    // Databases can share a key.
    Store::open_with(&at(folder.path(), "third.db", "gateway.key")).await.unwrap().close().await;
    Store::open_with(&config).await.unwrap().close().await;
}

#[cfg(unix)]
#[test]
fn link_in_the_way_of_a_private_file_is_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let (victim, key) = (folder.path().join("victim"), folder.path().join("gateway.key"));
    fs::write(&victim, "mine").unwrap();
    for target in [Target::New, Target::Replaced] {
        std::os::unix::fs::symlink(&victim, folder.path().join(format!("gateway.key.{}.new", std::process::id())))
            .unwrap();
        write_private(&key, b"secret", target).unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"mine");
        assert_eq!(fs::read(&key).unwrap(), b"secret");
        assert!(!key.is_symlink());
    }
}
