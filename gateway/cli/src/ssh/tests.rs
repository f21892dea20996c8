use super::*;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn lines_are_written_into_private_files_that_are_made() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join(".ssh");
    write(&folder, "Host *.gateway\n").unwrap();
    assert_eq!(mode(&folder), 0o700);
    for file in [FILE, "config"] {
        assert_eq!(mode(&folder.join(file)), 0o600, "{file}");
    }
    assert_eq!(fs::read_to_string(folder.join(FILE)).unwrap(), "Host *.gateway\n");
    let config = fs::read_to_string(folder.join("config")).unwrap();
    assert_eq!(config, format!("Include \"{}\"\n", folder.join(FILE).display()));
    write(&folder, "Host *.gateway\n# new\n").unwrap();
    assert_eq!(fs::read_to_string(folder.join("config")).unwrap(), config);
    assert!(fs::read_to_string(folder.join(FILE)).unwrap().ends_with("# new\n"));
}

#[test]
fn configuration_that_is_there_keeps_its_mode_its_rest_and_its_place() {
    let home = tempfile::tempdir().unwrap();
    let (folder, dotfiles) = (home.path().join(".ssh"), home.path().join("dotfiles"));
    fs::create_dir_all(&folder).unwrap();
    fs::write(&dotfiles, b"Host old\n\tUser \xff\n").unwrap();
    fs::set_permissions(&dotfiles, fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink(&dotfiles, folder.join("config")).unwrap();
    write(&folder, "Host *.gateway\n").unwrap();
    assert!(fs::symlink_metadata(folder.join("config")).unwrap().is_symlink());
    assert_eq!(mode(&dotfiles), 0o640);
    let written = fs::read(&dotfiles).unwrap();
    assert!(written.starts_with(b"Include ") && written.ends_with(b"\n\nHost old\n\tUser \xff\n"));
}

#[test]
fn what_cannot_be_written_is_named_and_changes_nothing() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join(".ssh");
    fs::create_dir_all(folder.join("config")).unwrap();
    let error = write(&folder, "Host *.gateway\n").unwrap_err();
    assert!(error.contains("config"), "{error}");
}
