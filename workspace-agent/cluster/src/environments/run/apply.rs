//! Makes an environment be what was sent.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::Instant;
use tunnel_proto::environments::{Apply, Done, ObjectError, ObjectErrorCode, ObjectStep, TRACKED_MAX};

use super::{CallOutcome, CallRun, GONE_TIMEOUT, stopped};
use crate::api::Over;
use crate::environments::decide::{self, ObjectOwnership};
use crate::environments::{request, whole};
use crate::inventory_store;
use crate::object::{LiveObject, ObjectKey, Resource, SentObject};
use crate::retry::ApiError;

/// Attempts at applying an object that changes while it is judged.
const JUDGEMENTS_MAX: u32 = 4;

/// Most looks at everything that is to be applied, each after objects on their way out are gone.
const LOOKS_MAX: u32 = 3;

/// Wanted objects by name, with their places in the API.
type DesiredObjects<'a> = BTreeMap<ObjectKey, (&'a SentObject, Resource)>;

impl CallRun<'_> {
    /// Carries out a call to apply.
    pub(in crate::environments) async fn apply(mut self, apply: &Apply) -> Done {
        let opened = self.open(&apply.tracked).await;
        let objects = match (opened, request::objects(apply)) {
            (Err(error), _) => return self.close(Err(error)).await,
            (Ok(()), Err(errors)) => {
                self.done.errors = errors;
                return self.close(Ok(())).await;
            }
            (Ok(()), Ok(objects)) => objects,
        };
        let ended = self.make(&objects).await;
        self.close(ended).await
    }

    async fn make(&mut self, objects: &[SentObject]) -> CallOutcome<()> {
        let wanted = self.find(objects).await?;
        let ownerships = self.look(&wanted).await?;
        let foreign: Vec<_> =
            ownerships.iter().filter(|(_, ownership)| **ownership == ObjectOwnership::Foreign).collect();
        if !foreign.is_empty() {
            for (key, _) in foreign {
                let error = self.not_owned(key, wanted.get(key));
                self.fail(key, error)?;
            }
            return Ok(());
        }
        for key in ownerships.keys() {
            if let Some((object, _)) = wanted.get(key) {
                self.book.add(key, &object.version);
            }
        }
        let keys = self.book.keys();
        if keys.len() > TRACKED_MAX {
            let message = format!("more than {TRACKED_MAX} objects would be tracked for the environment");
            return Err(Box::new(whole(ObjectErrorCode::Invalid, message)));
        }
        inventory_store::write(&self.own, &self.inventory, |tracked| tracked.union(&keys).cloned().collect())
            .await
            .map_err(stopped)?;
        let applied = self.apply_all(objects, &wanted, &ownerships).await?;
        if self.done.errors.is_empty() {
            let named: BTreeSet<_> = objects.iter().map(|object| object.key.clone()).collect();
            let stale = self.book.keys().difference(&named).cloned().collect();
            self.prune(stale, &applied, Instant::now() + GONE_TIMEOUT).await?;
        }
        Ok(())
    }

    /// Finds the places of the objects in the API; those without a place there have their errors.
    async fn find<'a>(&mut self, objects: &'a [SentObject]) -> CallOutcome<DesiredObjects<'a>> {
        let mut wanted = DesiredObjects::new();
        for object in objects {
            let key = &object.key;
            let found = self.resources.find(&self.acting, &key.group, Some(&object.version), &key.kind).await;
            let message = match found {
                Ok(resource) if resource.is_namespaced != key.namespace.is_empty() => {
                    wanted.insert(key.clone(), (object, resource));
                    continue;
                }
                Ok(resource) if resource.is_namespaced => Ok(format!("{key} has no namespace")),
                Ok(_) => Ok(format!("{key} has a namespace, and its kind is of the whole cluster")),
                Err(error) => Err(error),
            };
            let named = request::reference(key, &object.version, "");
            let error = match message {
                Ok(message) => ObjectError { object: Some(named), code: ObjectErrorCode::Invalid, message },
                Err(error) => {
                    ObjectError { object: Some(named), code: decide::code(&error), message: error.to_string() }
                }
            };
            self.fail(key, error)?;
        }
        Ok(wanted)
    }

    /// Looks at the wanted objects, and waits for those on their way out. Objects that may not be looked at have their
    /// errors.
    async fn look(&mut self, wanted: &DesiredObjects<'_>) -> CallOutcome<BTreeMap<ObjectKey, ObjectOwnership>> {
        let deadline = Instant::now() + GONE_TIMEOUT;
        let mut refused = BTreeSet::new();
        let mut looks = 0;
        loop {
            looks += 1;
            let (mut ownerships, mut leaving) = (BTreeMap::new(), Vec::new());
            let asked: Vec<_> = wanted.iter().filter(|(key, _)| !refused.contains(*key)).collect();
            for (key, (object, resource)) in asked {
                match self.live(object, resource).await {
                    Ok(live) => {
                        let ownership = decide::ownership(live, &self.scope.inventory);
                        if let ObjectOwnership::Leaving(live) = &ownership {
                            leaving.push((key.clone(), live.clone()));
                        }
                        ownerships.insert(key.clone(), ownership);
                    }
                    Err(error) => {
                        refused.insert(key.clone());
                        let error = named(key, object, &error);
                        self.fail(key, error)?;
                    }
                }
            }
            let is_refused = ownerships.values().any(|ownership| *ownership == ObjectOwnership::Foreign);
            if is_refused || leaving.is_empty() || looks > LOOKS_MAX || Instant::now() >= deadline {
                return Ok(ownerships);
            }
            for (key, live) in &leaving {
                self.book.add(key, "");
                let message = format!("it has to be gone first, and is still being deleted{}", decide::held_by(live));
                self.say(key, ObjectStep::Waiting, message);
            }
            self.until_gone(leaving, deadline).await?;
        }
    }

    /// Reads the metadata of the object under a name.
    ///
    /// # Errors
    /// [`ApiError::NotFound`] if the server has the kind no more in the object's version.
    async fn live(&self, object: &SentObject, resource: &Resource) -> Result<Option<LiveObject>, ApiError> {
        let SentObject { key, version, .. } = object;
        let looked = self.acting.metadata(&resource.path(&key.namespace, &key.name)).await;
        let Err(unserved @ ApiError::NotServed(_)) = looked else { return looked };
        let found = self.resources.find_again(&self.acting, resource, Some(version), &key.kind, unserved.clone()).await;
        // The kind is in another place: the next call begins there.
        found.and(Err(unserved))
    }

    /// Applies what can be applied; returns the uids of the applied objects. Nothing goes into a namespace that is to
    /// be made and that is not, seen from here, the environment's: objects in it may be another owner's, and be given
    /// to a job by what is applied.
    async fn apply_all(
        &mut self,
        objects: &[SentObject],
        wanted: &DesiredObjects<'_>,
        ownerships: &BTreeMap<ObjectKey, ObjectOwnership>,
    ) -> CallOutcome<BTreeSet<String>> {
        let mut applied = BTreeSet::new();
        let namespaces = objects.iter().map(|object| &object.key).filter(|key| decide::is_namespace(key));
        let unseen = namespaces.filter(|key| !ownerships.contains_key(*key));
        let mut withheld: BTreeSet<_> = unseen.map(|key| key.name.as_str()).collect();
        for object in objects {
            let key = &object.key;
            let (Some((_, resource)), Some(ownership)) = (wanted.get(key), ownerships.get(key)) else { continue };
            let path = &resource.path(&key.namespace, &key.name);
            let result = if withheld.contains(key.namespace.as_str()) {
                let why = "which is not there, or not known to be the environment's";
                // Says nothing about the owner of the object itself, or it would be forgotten if it is the
                // environment's.
                Err(self.conflict(key, format!("{key} is not applied in its namespace, {why}")))
            } else {
                self.apply_one(object, path, ownership.clone()).await
            };
            match result {
                Ok(live) => drop(applied.insert(live.uid)),
                Err(error) => {
                    if decide::is_namespace(key) {
                        withheld.insert(&key.name);
                    }
                    self.fail(key, error)?;
                }
            }
        }
        Ok(applied)
    }

    /// Applies one object over what was seen, and nothing else: an object that changed meanwhile is judged again.
    async fn apply_one(
        &mut self,
        object: &SentObject,
        path: &str,
        mut ownership: ObjectOwnership,
    ) -> Result<LiveObject, ObjectError> {
        let key = &object.key;
        for _ in 0..JUDGEMENTS_MAX {
            let before = match ownership {
                ObjectOwnership::New => None,
                ObjectOwnership::Ours(live) => {
                    self.book.ours(key, &live.uid);
                    Some(live)
                }
                ObjectOwnership::Leaving(live) => {
                    self.book.ours(key, &live.uid);
                    let message = format!("it is still being deleted{}", decide::held_by(&live));
                    return Err(self.conflict(key, message));
                }
                ObjectOwnership::Foreign => {
                    self.book.not(key);
                    return Err(self.not_owned(key, None));
                }
            };
            let over = before.as_ref().map_or(Over::Nothing, |live| Over::Version(&live.resource_version));
            match self.acting.apply(path, &object.value, over).await {
                Ok(value) => {
                    let live = LiveObject::read(&value);
                    self.book.ours(key, &live.uid);
                    let is_same = before.is_some_and(|before| before.resource_version == live.resource_version);
                    self.say(key, if is_same { ObjectStep::Unchanged } else { ObjectStep::Applied }, "");
                    return Ok(live);
                }
                Err(ApiError::Conflict(_)) => {
                    let live = self.acting.metadata(path).await.map_err(|error| self.error(key, &error))?;
                    ownership = decide::ownership(live, &self.scope.inventory);
                }
                Err(error) => return Err(self.error(key, &error)),
            }
        }
        Err(self.conflict(key, "it changes all the time and could not be applied".to_owned()))
    }

    fn conflict(&self, key: &ObjectKey, message: String) -> ObjectError {
        ObjectError { object: Some(self.book.reference(key)), code: ObjectErrorCode::Conflict, message }
    }

    fn not_owned(&self, key: &ObjectKey, wanted: Option<&(&SentObject, Resource)>) -> ObjectError {
        let object = match wanted {
            Some((object, _)) => request::reference(key, &object.version, ""),
            None => self.book.reference(key),
        };
        let message = format!("{key} is there already and is not of this environment: it is left as it is");
        ObjectError { object: Some(object), code: ObjectErrorCode::NotOwned, message }
    }
}

fn named(key: &ObjectKey, object: &SentObject, error: &ApiError) -> ObjectError {
    let object = request::reference(key, &object.version, "");
    ObjectError { object: Some(object), code: decide::code(error), message: error.to_string() }
}
