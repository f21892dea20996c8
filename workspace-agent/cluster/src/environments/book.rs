//! Knowledge about an environment's objects in the course of a call.

use std::collections::{BTreeMap, BTreeSet};

use tunnel_proto::environments::ObjectRef;

use super::request::{key, reference};
use crate::object::ObjectKey;

/// Whether an object is there, and the environment's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ObjectState {
    /// It was recorded, or its application was tried, and it has not been looked at since.
    Unknown,
    Ours,
    /// It is the environment's, and says that it is to be kept: it stays as long as it says so.
    Kept,
    /// It is not there, or not the environment's.
    Not,
}

#[derive(Clone, Debug)]
struct BookEntry {
    version: String,
    uid: String,
    state: ObjectState,
}

/// The objects that are, were or are to be the environment's.
#[derive(Clone, Debug, Default)]
pub(super) struct ObjectBook {
    entries: BTreeMap<ObjectKey, BookEntry>,
}

impl ObjectBook {
    /// Opens the book with the objects that the gateway has recorded. Objects that no inventory could track were never
    /// made.
    pub(super) fn new(recorded: &[ObjectRef]) -> Self {
        let entry = |object: &ObjectRef| {
            let entry =
                BookEntry { version: object.version.clone(), uid: object.uid.clone(), state: ObjectState::Unknown };
            Some((key(object)?, entry))
        };
        Self { entries: recorded.iter().filter_map(entry).collect() }
    }

    /// Adds an object that may be there, or is about to be made.
    pub(super) fn add(&mut self, key: &ObjectKey, version: &str) {
        let entry = self.entries.entry(key.clone());
        let entry = entry.or_insert_with(|| BookEntry {
            version: String::new(),
            uid: String::new(),
            state: ObjectState::Unknown,
        });
        if !version.is_empty() {
            version.clone_into(&mut entry.version);
        }
        if entry.state == ObjectState::Not {
            entry.state = ObjectState::Unknown;
        }
    }

    /// Notes that an object is there, and the environment's.
    pub(super) fn ours(&mut self, key: &ObjectKey, uid: &str) {
        if let Some(entry) = self.entries.get_mut(key) {
            uid.clone_into(&mut entry.uid);
            entry.state = ObjectState::Ours;
        }
    }

    /// Notes that an object is there, and stays although it is not wanted.
    pub(super) fn kept(&mut self, key: &ObjectKey) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.state = ObjectState::Kept;
        }
    }

    /// Notes that an object is not there, or not the environment's.
    pub(super) fn not(&mut self, key: &ObjectKey) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.state = ObjectState::Not;
        }
    }

    /// Names an object.
    pub(super) fn reference(&self, key: &ObjectKey) -> ObjectRef {
        match self.entries.get(key) {
            Some(entry) => reference(key, &entry.version, &entry.uid),
            None => reference(key, "", ""),
        }
    }

    /// Returns all its objects.
    pub(super) fn keys(&self) -> BTreeSet<ObjectKey> {
        self.entries.keys().cloned().collect()
    }

    /// Returns the objects that were not looked at.
    pub(super) fn unknown(&self) -> Vec<ObjectKey> {
        self.those(|state| state == ObjectState::Unknown)
    }

    /// Returns whether an object is there, or may be, and does not stay.
    pub(super) fn is_to_go(&self, key: &ObjectKey) -> bool {
        self.entries.get(key).is_some_and(|entry| matches!(entry.state, ObjectState::Unknown | ObjectState::Ours))
    }

    /// Returns whether something in a namespace is kept.
    pub(super) fn keeps_in(&self, namespace: &str) -> bool {
        self.entries.iter().any(|(key, entry)| key.namespace == namespace && entry.state == ObjectState::Kept)
    }

    /// Returns the namespaces in which something is, or may be, the environment's.
    pub(super) fn namespaces(&self) -> BTreeSet<String> {
        let there = self.entries.iter().filter(|(_, entry)| entry.state != ObjectState::Not);
        there.map(|(key, _)| key.namespace.clone()).filter(|namespace| !namespace.is_empty()).collect()
    }

    /// Returns the objects that are known not to be the environment's.
    pub(super) fn gone(&self) -> BTreeSet<ObjectKey> {
        self.those(|state| state == ObjectState::Not).into_iter().collect()
    }

    /// Returns the objects that are, or may be, the environment's.
    pub(super) fn objects(&self) -> Vec<ObjectRef> {
        let there = self.entries.iter().filter(|(_, entry)| entry.state != ObjectState::Not);
        there.map(|(key, entry)| reference(key, &entry.version, &entry.uid)).collect()
    }

    fn those(&self, is_it: impl Fn(ObjectState) -> bool) -> Vec<ObjectKey> {
        self.entries.iter().filter(|(_, entry)| is_it(entry.state)).map(|(key, _)| key.clone()).collect()
    }
}

#[cfg(test)]
mod tests;
