//! May this principal reach this port of this workspace: one pure function, and the proof that it said yes.

use crate::auth::principal::{Principal, Via};
use crate::model::{Port, UserName, WorkspaceName};

/// What a request wants to reach.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The workspace that the host names, whether or not there is one.
    pub workspace: &'a WorkspaceName,
    /// The port that the host names.
    pub port: Port,
    /// What the store knows of the workspace; `None` if there is none. It is not read for a request without a principal,
    /// so the caller need not look it up then (and should not: the time that it takes would tell).
    pub record: Option<Exposure<'a>>,
}

/// Who owns a workspace and what it exposes.
#[derive(Clone, Copy, Debug)]
pub struct Exposure<'a> {
    /// The owner.
    pub owner: &'a UserName,
    /// The ports that may be reached; `None` for any.
    pub ports: Option<&'a [Port]>,
}

/// What a request is for, as far as that decides who may be behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Somebody opens the address in a browser tab. Only such a request is ever redirected to sign in.
    PageVisit,
    /// Any other request with a safe method (RFC 9110, section 9.2.1).
    Read,
    /// An unsafe method, an upgrade, a `CONNECT`.
    Change,
}

/// Where a request comes from, by the browser's own account (Fetch Metadata, `Origin`). Programs can claim anything, but
/// they have no cookies of a victim to misuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A page of the very same origin.
    SameOrigin,
    /// A page on another port of the same workspace.
    SameWorkspace,
    /// The user: the address bar, a bookmark.
    UserInitiated,
    /// Any other page, the one of a neighbouring workspace included: to a browser all workspaces may be the same site.
    Foreign,
    /// The request does not say. All current browsers do for a [`Purpose::Change`].
    Unstated,
}

/// Shape of a request: what [`decide`] needs to know beside who and where to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestShape {
    /// What it is for.
    pub purpose: Purpose,
    /// Where it comes from.
    pub source: Source,
}

impl RequestShape {
    /// Returns whether a cookie speaks for the user here. It does not where a foreign page may have caused the request,
    /// except for opening a page, which is how links work. This is the defence that `SameSite` is not: siblings under one
    /// zone are the same site.
    #[must_use]
    pub fn cookie_counts(self) -> bool {
        match (self.source, self.purpose) {
            (Source::SameOrigin | Source::SameWorkspace | Source::UserInitiated, _) => true,
            (Source::Foreign, purpose) => purpose == Purpose::PageVisit,
            (Source::Unstated, purpose) => purpose != Purpose::Change,
        }
    }
}

/// Permission for one user to reach one port of one workspace, now.
///
/// # Invariants
///
/// Only [`decide`] makes one, so code that asks for a `&Grant` before it opens a channel cannot run for a request that was
/// not decided:
///
/// ```compile_fail,E0451
/// fn forge(user: gateway::model::UserName, workspace: gateway::model::WorkspaceName, port: gateway::model::Port) {
///     let _ = gateway::auth::policy::Grant { user, workspace, port };
/// }
/// ```
#[derive(Debug, PartialEq, Eq)]
pub struct Grant {
    user: UserName,
    workspace: WorkspaceName,
    port: Port,
}

impl Grant {
    /// Returns who may.
    #[must_use]
    pub fn user(&self) -> &UserName {
        &self.user
    }

    /// Returns the workspace that may be reached.
    #[must_use]
    pub fn workspace(&self) -> &WorkspaceName {
        &self.workspace
    }

    /// Returns the port that may be reached.
    #[must_use]
    pub fn port(&self) -> Port {
        self.port
    }
}

/// The answer to "may they?".
#[derive(Debug, PartialEq, Eq)]
pub enum Decision {
    /// Yes.
    Allow(Grant),
    /// Nobody is signed in, and this is a page visit: send them to sign in.
    SignIn,
    /// Nobody is signed in as far as this request can prove: refuse, never redirect.
    Unauthorized,
    /// There is no such workspace, or it belongs to somebody else: the same answer for both.
    NotFound,
    /// The workspace is theirs, and does not expose this port.
    PortNotAllowed,
}

/// Decides whether `principal` may reach `target` with a request of this `shape`.
///
/// Without a principal the answer depends on the shape alone, so it does not tell whether the workspace exists.
#[must_use]
pub fn decide(principal: Option<&Principal>, target: &Target<'_>, shape: RequestShape) -> Decision {
    let proven = principal.filter(|principal| match principal.via {
        Via::ApiToken => true,
        Via::Browser => shape.cookie_counts(),
    });
    let Some(principal) = proven else {
        return match shape.purpose {
            Purpose::PageVisit => Decision::SignIn,
            Purpose::Read | Purpose::Change => Decision::Unauthorized,
        };
    };
    let Some(record) = target.record.filter(|record| *record.owner == principal.user) else {
        return Decision::NotFound;
    };
    if record.ports.is_some_and(|ports| !ports.contains(&target.port)) {
        return Decision::PortNotAllowed;
    }
    Decision::Allow(Grant { user: principal.user.clone(), workspace: target.workspace.clone(), port: target.port })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SOURCES: [Source; 5] =
        [Source::SameOrigin, Source::SameWorkspace, Source::UserInitiated, Source::Foreign, Source::Unstated];
    const PURPOSES: [Purpose; 3] = [Purpose::PageVisit, Purpose::Read, Purpose::Change];

    fn user(name: &str) -> UserName {
        name.parse().unwrap()
    }

    fn shapes() -> impl Strategy<Value = RequestShape> {
        (prop::sample::select(PURPOSES.to_vec()), prop::sample::select(SOURCES.to_vec()))
            .prop_map(|(purpose, source)| RequestShape { purpose, source })
    }

    fn principals() -> impl Strategy<Value = Principal> {
        (prop::sample::select(vec!["ann", "bob"]), prop::sample::select(vec![Via::Browser, Via::ApiToken]))
            .prop_map(|(name, via)| Principal { user: user(name), via })
    }

    /// A workspace as the store might know it: absent, or with an owner and perhaps a port list.
    type Record = Option<(UserName, Option<Vec<Port>>)>;

    fn records() -> impl Strategy<Value = Record> {
        let ports = prop::option::of(prop::collection::vec((1..5_u16).prop_map(|port| Port::new(port).unwrap()), 0..3));
        prop::option::of((prop::sample::select(vec!["ann", "bob", "eve"]).prop_map(user), ports))
    }

    fn ask(principal: Option<&Principal>, record: &Record, port: Port, shape: RequestShape) -> Decision {
        let workspace = "app".parse().unwrap();
        let record = record.as_ref().map(|(owner, ports)| Exposure { owner, ports: ports.as_deref() });
        decide(principal, &Target { workspace: &workspace, port, record }, shape)
    }

    #[test]
    fn cookie_counts_only_where_no_foreign_page_can_be_behind_the_request() {
        let yes: Vec<_> = SOURCES
            .iter()
            .flat_map(|&source| PURPOSES.iter().map(move |&purpose| RequestShape { purpose, source }))
            .filter(|shape| !shape.cookie_counts())
            .map(|shape| (shape.source, shape.purpose))
            .collect();
        let refused =
            [(Source::Foreign, Purpose::Read), (Source::Foreign, Purpose::Change), (Source::Unstated, Purpose::Change)];
        assert_eq!(yes, refused);
    }

    #[test]
    fn owner_reaches_the_exposed_port_and_no_other() {
        let principal = Principal { user: user("ann"), via: Via::ApiToken };
        let shape = RequestShape { purpose: Purpose::Change, source: Source::Unstated };
        let (open, shut) = (Port::new(8080).unwrap(), Port::new(22).unwrap());
        let record = Some((user("ann"), Some(vec![open])));
        let Decision::Allow(grant) = ask(Some(&principal), &record, open, shape) else { panic!("not allowed") };
        assert_eq!((grant.user(), grant.workspace().as_str(), grant.port()), (&user("ann"), "app", open));
        assert_eq!(ask(Some(&principal), &record, shut, shape), Decision::PortNotAllowed);
        let any = Some((user("ann"), None));
        assert!(matches!(ask(Some(&principal), &any, shut, shape), Decision::Allow(_)));
    }

    #[test]
    fn cookie_of_the_owner_is_as_good_as_none_where_it_does_not_count() {
        let ann = |via| Principal { user: user("ann"), via };
        let (record, port) = (Some((user("ann"), None)), Port::new(8080).unwrap());
        for source in SOURCES {
            for purpose in PURPOSES {
                let shape = RequestShape { purpose, source };
                let by_cookie = ask(Some(&ann(Via::Browser)), &record, port, shape);
                if shape.cookie_counts() {
                    assert!(matches!(by_cookie, Decision::Allow(_)), "{shape:?}");
                } else {
                    assert_eq!(by_cookie, ask(None, &record, port, shape), "{shape:?}");
                }
                let by_token = ask(Some(&ann(Via::ApiToken)), &record, port, shape);
                assert!(matches!(by_token, Decision::Allow(_)), "{shape:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn without_a_principal_the_answer_depends_on_the_shape_alone(
            shape in shapes(), one in records(), other in records(), port in 1..5_u16
        ) {
            let port = Port::new(port).unwrap();
            let answer = ask(None, &one, port, shape);
            prop_assert_eq!(&answer, &ask(None, &other, port, shape));
            let expected =
                if shape.purpose == Purpose::PageVisit { Decision::SignIn } else { Decision::Unauthorized };
            prop_assert_eq!(answer, expected);
        }

        #[test]
        fn a_foreign_workspace_looks_like_none(
            principal in principals(), shape in shapes(), record in records(), port in 1..5_u16
        ) {
            let port = Port::new(port).unwrap();
            let theirs = record.as_ref().is_some_and(|(owner, _)| *owner == principal.user);
            if !theirs {
                prop_assert_eq!(ask(Some(&principal), &record, port, shape), ask(Some(&principal), &None, port, shape));
            }
        }

        #[test]
        fn a_grant_is_only_for_the_owner_an_exposed_port_and_proof_that_counts(
            principal in prop::option::of(principals()), shape in shapes(), record in records(), port in 1..5_u16
        ) {
            let port = Port::new(port).unwrap();
            let allowed = matches!(ask(principal.as_ref(), &record, port, shape), Decision::Allow(_));
            let expected = match (&principal, &record) {
                (Some(principal), Some((owner, ports))) => {
                    principal.user == *owner
                        && ports.as_ref().is_none_or(|ports| ports.contains(&port))
                        && (principal.via == Via::ApiToken || shape.cookie_counts())
                }
                _ => false,
            };
            prop_assert_eq!(allowed, expected);
        }

        #[test]
        fn a_redirect_answers_page_visits_only(
            principal in prop::option::of(principals()), shape in shapes(), record in records(), port in 1..5_u16
        ) {
            let answer = ask(principal.as_ref(), &record, Port::new(port).unwrap(), shape);
            prop_assert!(answer != Decision::SignIn || shape.purpose == Purpose::PageVisit);
        }
    }
}
