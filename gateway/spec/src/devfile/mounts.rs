//! `volumeMounts` of containers. Volumes may be declared after them, so they are looked up at the end.

use std::collections::BTreeMap;

use super::components::ComponentKind;
use super::{PROJECTS_PATH, VolumeMount};
use crate::document::{Location, Problems, ValueAt, show};

/// Longest path, in bytes: the limit of Linux.
const PATH_MAX: usize = 4095;

/// Our own folder in each container, with all that is below it.
const OWN_PATH: &str = "/workspace-gateway";

/// Mounts of the containers so far.
#[derive(Default)]
pub(super) struct Mounts {
    /// Mounted volumes: path in the file, place, and name of the volume.
    named: Vec<(String, Location, String)>,
}

impl Mounts {
    /// Reads the mounts of one container.
    pub(super) fn read(&mut self, at: &ValueAt<'_>, problems: &mut Problems) -> Vec<VolumeMount> {
        let mut seen: BTreeMap<String, Location> = BTreeMap::new();
        let mut mounts = Vec::new();
        for item in at.items(problems) {
            let Some(mut fields) = item.fields(problems) else {
                continue;
            };
            let name_at = fields.require("name", problems);
            let path_at = fields.take("path");
            fields.finish(problems);
            let path = path_at.as_ref().and_then(|at| read_path(at, problems)).map(str::to_owned);
            let Some((at, name)) = name_at.and_then(|at| at.text(problems).map(|name| (at, name))) else {
                continue;
            };
            self.named.push((at.path.clone(), at.node.place, name.to_owned()));
            let mount = VolumeMount { name: name.to_owned(), path };
            let told_at = path_at.as_ref().unwrap_or(&at);
            // A bad path was reported, and is not the default that would be compared here.
            if path_at.is_none() || mount.path.is_some() {
                let path = mount.mount_path();
                match seen.get(&path) {
                    Some(first) => {
                        let message = format!("{} has a volume already, on line {}", show(&path), first.line);
                        told_at.object(problems, message);
                    }
                    None => {
                        seen.insert(path, told_at.node.place);
                    }
                }
            }
            mounts.push(mount);
        }
        mounts
    }

    /// Notes mounts of names that are no volume.
    pub(super) fn check(self, kinds: &BTreeMap<String, ComponentKind>, problems: &mut Problems) {
        for (path, place, name) in self.named {
            let message = match kinds.get(&name) {
                Some(ComponentKind::Volume | ComponentKind::Unclear) => continue,
                Some(ComponentKind::Container) => format!("{} is a container, not a volume", show(&name)),
                None => format!("no volume has the name {}", show(&name)),
            };
            problems.add(path, Some(place), message);
        }
    }
}

fn read_path<'n>(at: &ValueAt<'n>, problems: &mut Problems) -> Option<&'n str> {
    let path = at.text(problems)?;
    let is_sound = path.starts_with('/')
        && path.len() <= PATH_MAX
        && !path.contains(|letter: char| letter.is_control() || letter == ':')
        && !path.split('/').any(|part| matches!(part, "." | ".."));
    let trimmed = path.trim_end_matches('/');
    if !is_sound {
        at.object(problems, format!("must be an absolute path without . and .. and colons; it is {}", show(path)));
        return None;
    }
    let is_own = trimmed.strip_prefix(OWN_PATH).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if trimmed.is_empty() {
        at.object(problems, "must not be /: it would hide the image");
        return None;
    }
    if trimmed == PROJECTS_PATH || is_own {
        at.object(problems, format!("{} is mounted by the gateway", show(trimmed)));
        return None;
    }
    Some(path)
}
