use super::*;

/// A directory that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("gateway-ssh-{test}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn lines_are_written_into_private_files_that_are_made() {
    let home = Folder::new("fresh");
    let folder = home.0.join(".ssh");
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
    let home = Folder::new("kept");
    let (folder, dotfiles) = (home.0.join(".ssh"), home.0.join("dotfiles"));
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
    let home = Folder::new("broken");
    let folder = home.0.join(".ssh");
    fs::create_dir_all(folder.join("config")).unwrap();
    let error = write(&folder, "Host *.gateway\n").unwrap_err();
    assert!(error.contains("config"), "{error}");
}
