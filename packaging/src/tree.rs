//! Files of an image or a package, written as a tar archive that depends on nothing but them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tar::{Builder, EntryType, Header};

/// User and group of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// Number of the user.
    pub(crate) user: u32,
    /// Number of the group.
    pub(crate) group: u32,
}

/// Owner of everything that is not written to.
pub(crate) const ROOT: Owner = Owner { user: 0, group: 0 };

/// Mode of a program or a folder.
pub(crate) const PROGRAM: u32 = 0o755;

/// Mode of a file that is read.
pub(crate) const TEXT: u32 = 0o644;

#[derive(Debug)]
enum Content {
    Folder,
    Text(Vec<u8>),
    Copy(PathBuf),
    Link(String),
}

#[derive(Debug)]
struct Node {
    mode: u32,
    owner: Owner,
    content: Content,
}

/// Files by their paths, without a leading slash. Folders above them are made, for root.
#[derive(Debug, Default)]
pub(crate) struct Tree(BTreeMap<String, Node>);

impl Tree {
    /// Adds a folder.
    pub(crate) fn folder(&mut self, path: &str, mode: u32, owner: Owner) {
        self.put(path, Node { mode, owner, content: Content::Folder });
    }

    /// Adds a file of root's with this text.
    pub(crate) fn text(&mut self, path: &str, mode: u32, text: impl Into<Vec<u8>>) {
        self.put(path, Node { mode, owner: ROOT, content: Content::Text(text.into()) });
    }

    /// Adds a file of root's, which is read when the archive is written.
    pub(crate) fn copy(&mut self, path: &str, mode: u32, from: &Path) {
        self.put(path, Node { mode, owner: ROOT, content: Content::Copy(from.to_owned()) });
    }

    /// Adds a symbolic link.
    pub(crate) fn link(&mut self, path: &str, to: &str) {
        self.put(path, Node { mode: 0o777, owner: ROOT, content: Content::Link(to.to_owned()) });
    }

    /// Adds all that is in a folder: root's, readable by all, writable by root alone, programs where the owner may run them.
    ///
    /// # Errors
    /// Names the file that cannot be read, or that is neither a file, a folder nor a link.
    pub(crate) fn copy_folder(&mut self, path: &str, from: &Path) -> io::Result<()> {
        for entry in fs::read_dir(from).map_err(|error| naming(from, &error))? {
            let entry = entry?;
            let name = entry.file_name();
            let inside = format!("{path}/{}", name.to_str().ok_or_else(|| unusable(&entry.path()))?);
            let kind = entry.file_type()?;
            if kind.is_dir() {
                self.folder(&inside, PROGRAM, ROOT);
                self.copy_folder(&inside, &entry.path())?;
            } else if kind.is_symlink() {
                let to = fs::read_link(entry.path())?;
                self.link(&inside, to.to_str().ok_or_else(|| unusable(&entry.path()))?);
            } else if kind.is_file() {
                let runs = entry.metadata()?.permissions().mode() & 0o100 != 0;
                self.copy(&inside, if runs { PROGRAM } else { TEXT }, &entry.path());
            } else {
                return Err(unusable(&entry.path()));
            }
        }
        Ok(())
    }

    fn put(&mut self, path: &str, node: Node) {
        for (end, _) in path.match_indices('/') {
            let above = path.get(..end).unwrap_or_default().to_owned();
            self.0.entry(above).or_insert(Node { mode: PROGRAM, owner: ROOT, content: Content::Folder });
        }
        self.0.insert(path.to_owned(), node);
    }

    /// Returns whether a program is at the path, or a link.
    pub(crate) fn has_program(&self, path: &str) -> bool {
        let node = self.0.get(path);
        node.is_some_and(|node| !matches!(node.content, Content::Folder) && node.mode & 0o111 == 0o111)
    }

    /// Returns the number of bytes in all files.
    ///
    /// # Errors
    /// Names the file that cannot be read.
    pub(crate) fn size(&self) -> io::Result<u64> {
        let of = |node: &Node| match &node.content {
            Content::Text(text) => u64::try_from(text.len()).map_err(io::Error::other),
            Content::Copy(from) => Ok(fs::metadata(from).map_err(|error| naming(from, &error))?.len()),
            Content::Folder | Content::Link(_) => Ok(0),
        };
        self.0.values().map(of).sum()
    }

    /// Writes the archive, sorted by path. `time` is that of all files, in seconds since 1970.
    ///
    /// # Errors
    /// Names the file that cannot be read; or what `out` says.
    pub(crate) fn write<W: Write>(&self, out: W, time: u64) -> io::Result<W> {
        let mut builder = Builder::new(out);
        for (path, node) in &self.0 {
            let mut header = Header::new_gnu();
            header.set_mode(node.mode);
            header.set_uid(node.owner.user.into());
            header.set_gid(node.owner.group.into());
            header.set_mtime(time);
            header.set_size(0);
            match &node.content {
                Content::Folder => {
                    header.set_entry_type(EntryType::Directory);
                    builder.append_data(&mut header, format!("{path}/"), io::empty())?;
                }
                Content::Text(text) => {
                    header.set_size(text.len().try_into().map_err(io::Error::other)?);
                    builder.append_data(&mut header, path, text.as_slice())?;
                }
                Content::Copy(from) => {
                    let file = File::open(from).map_err(|error| naming(from, &error))?;
                    header.set_size(file.metadata()?.len());
                    builder.append_data(&mut header, path, file)?;
                }
                Content::Link(to) => {
                    header.set_entry_type(EntryType::Symlink);
                    builder.append_link(&mut header, path, to)?;
                }
            }
        }
        builder.into_inner()
    }
}

fn unusable(path: &Path) -> io::Error {
    io::Error::other(format!("{}: neither a file, a folder nor a link, or its name is not text", path.display()))
}

fn naming(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(archive: &[u8]) -> Vec<String> {
        let mut archive = tar::Archive::new(archive);
        let line = |entry: io::Result<tar::Entry<'_, &[u8]>>| {
            let entry = entry.unwrap();
            let header = entry.header();
            let [user, group] = [header.uid().unwrap(), header.gid().unwrap()];
            let [mode, time] = [u64::from(header.mode().unwrap()), header.mtime().unwrap()];
            format!("{mode:o} {user}:{group} {time} {}", entry.path().unwrap().display())
        };
        archive.entries().unwrap().map(line).collect()
    }

    #[test]
    fn archive_is_sorted_and_has_folders_above_and_one_time() {
        let mut tree = Tree::default();
        tree.text("b/c", TEXT, "c");
        tree.folder("b/own", 0o700, Owner { user: 5, group: 6 });
        tree.link("a", "b/c");
        let archive = tree.write(Vec::new(), 9).unwrap();
        assert_eq!(listed(&archive), ["777 0:0 9 a", "755 0:0 9 b/", "644 0:0 9 b/c", "700 5:6 9 b/own/"]);
    }

    #[test]
    fn folder_is_taken_without_the_times_and_rights_of_this_machine() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("in")).unwrap();
        for (name, mode) in [("run", 0o700), ("in/read", 0o666)] {
            fs::write(folder.path().join(name), name).unwrap();
            fs::set_permissions(folder.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        let long = "n".repeat(200);
        fs::write(folder.path().join("in").join(&long), "").unwrap();
        let mut tree = Tree::default();
        tree.copy_folder("top", folder.path()).unwrap();
        let archive = tree.write(Vec::new(), 0).unwrap();
        let long = format!("644 0:0 0 top/in/{long}");
        assert_eq!(
            listed(&archive),
            ["755 0:0 0 top/", "755 0:0 0 top/in/", &long, "644 0:0 0 top/in/read", "755 0:0 0 top/run"]
        );
    }

    #[test]
    fn file_that_cannot_be_read_is_named() {
        let mut tree = Tree::default();
        tree.copy("a", TEXT, Path::new("/none/of/it"));
        assert!(tree.write(Vec::new(), 0).unwrap_err().to_string().contains("/none/of/it"));
    }
}
