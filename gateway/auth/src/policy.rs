//! The access decision for a principal and a port of a workspace: one pure function, and `Grant`, the proof that access was
//! allowed.

mod operators;

use gateway_types::principal::{Principal, Via};
use gateway_types::{Audience, Port, Share, UnixSeconds, UserName, WorkspaceName};

pub use self::operators::{OperatorGrant, Operators, operate};

/// Workspace and port that a request wants to reach.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The workspace that the host names, existing or not.
    pub workspace: &'a WorkspaceName,
    /// The port that the host names.
    pub port: Port,
    /// The workspace's record in the store; `None` if there is none. For a request without a principal only public
    /// shares in it are read, so without any the caller need not look it up (and should not: the time that it takes
    /// would tell).
    pub record: Option<Exposure<'a>>,
}

/// Owner of a workspace and the ports that it exposes.
#[derive(Clone, Copy, Debug)]
pub struct Exposure<'a> {
    /// The owner.
    pub owner: &'a UserName,
    /// The ports that may be reached; `None` for any.
    pub ports: Option<&'a [Port]>,
    /// Shares: other principals and the ports that they may reach.
    pub shares: &'a [Share],
}

/// Purpose of a request, as far as it tells whether the user or a foreign page caused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A user opens the address in a browser tab. Only such a request is ever redirected to sign in.
    PageVisit,
    /// Any other request with a safe method (RFC 9110, section 9.2.1).
    Read,
    /// An unsafe method, an upgrade, a `CONNECT`.
    Change,
}

/// Source of a request, as stated by the browser (Fetch Metadata, `Origin`). Programs can claim anything, but they have
/// no cookies of a victim to misuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestSource {
    /// A page of the very same origin.
    SameOrigin,
    /// A page on another port of the same workspace.
    SameWorkspace,
    /// The user: the address bar, a bookmark.
    UserInitiated,
    /// Any other page, also one of a neighbouring workspace: to a browser all workspaces may be the same site.
    Foreign,
    /// The request does not say. All current browsers do for a [`Purpose::Change`].
    Unstated,
}

/// Shape of a request: input of [`decide`] beside principal and target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestShape {
    /// Purpose of the request.
    pub purpose: Purpose,
    /// Source of the request.
    pub source: RequestSource,
}

impl RequestShape {
    /// Returns whether a cookie speaks for the user here. It does not if a foreign page may have caused the request,
    /// except for opening a page, which is how links work. `SameSite` does not defend against this: siblings under one
    /// zone are the same site.
    #[must_use]
    pub fn cookie_counts(self) -> bool {
        match (self.source, self.purpose) {
            (RequestSource::SameOrigin | RequestSource::SameWorkspace | RequestSource::UserInitiated, _) => true,
            (RequestSource::Foreign, purpose) => purpose == Purpose::PageVisit,
            (RequestSource::Unstated, purpose) => purpose != Purpose::Change,
        }
    }

    /// The same for a port. A change at the terminal gives control of the machine, and one at the request inspector sends a request in
    /// the owner's name, so an app on another port of the workspace, which may be third-party code or have a hole, is as foreign
    /// there as any other page. What the inspector shows such an app may not read either: it opens pages there, as links do.
    #[must_use]
    pub fn cookie_counts_at(self, port: Port) -> bool {
        let is_own = self.source == RequestSource::SameOrigin;
        let is_safe = match self.purpose {
            Purpose::PageVisit => true,
            Purpose::Read => !port.is_inspector() || self.source != RequestSource::SameWorkspace,
            Purpose::Change => !port.is_agents_page(),
        };
        self.cookie_counts() && (is_own || is_safe)
    }
}

/// Reason for letting a request through, recorded in the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Because {
    /// The principal owns the workspace.
    Owner,
    /// The port is shared with the principal.
    Shared(Audience),
}

/// Permission to reach one port of one workspace, now.
///
/// # Invariants
///
/// Only [`decide`] makes one, so code that takes a `Grant` cannot run for a request without a decision. Its fields are
/// private: no other module can fill them in.
///
/// ```compile_fail,E0451
/// use gateway_auth::policy::{Because, Grant};
/// use gateway_types::{Port, WorkspaceName};
///
/// fn forge(workspace: WorkspaceName, port: Port) -> Grant {
///     Grant { user: None, workspace, port, because: Because::Owner }
/// }
/// ```
///
/// With the same imports, code that reads a `Grant` compiles. So the private fields refuse the code above, and no missing
/// name:
///
/// ```
/// use gateway_auth::policy::{Because, Grant};
/// use gateway_types::{Port, WorkspaceName};
///
/// fn read(grant: &Grant) -> (&WorkspaceName, Port, bool) {
///     (grant.workspace(), grant.port(), *grant.because() == Because::Owner)
/// }
/// ```
#[derive(Debug, PartialEq, Eq)]
pub struct Grant {
    user: Option<UserName>,
    workspace: WorkspaceName,
    port: Port,
    because: Because,
}

impl Grant {
    /// Returns the user; `None` for an unauthenticated client of a public port.
    #[must_use]
    pub fn user(&self) -> Option<&UserName> {
        self.user.as_ref()
    }

    /// Returns the reason of the permission.
    #[must_use]
    pub fn because(&self) -> &Because {
        &self.because
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

/// Outcome of [`decide`].
#[derive(Debug, PartialEq, Eq)]
pub enum Decision {
    /// The request may pass.
    Allow(Grant),
    /// No user is signed in, and this is a page visit: send the browser to sign in.
    SignIn,
    /// The request cannot prove that a user is signed in: refuse, never redirect.
    Unauthorized,
    /// There is no such workspace, or it belongs to another user: the same answer for both.
    NotFound,
    /// The principal owns the workspace or has a share of another port; this port is not allowed.
    PortNotAllowed,
}

/// Decides whether `principal` may reach `target` with a request of this `shape`.
///
/// Without a principal the answer depends on the shape alone, unless the port is public, so it does not tell whether
/// the workspace exists. A workspace of which nothing is shared with a principal looks to them as if it did not exist.
#[must_use]
pub fn decide(principal: Option<&Principal>, target: &Target<'_>, shape: RequestShape, now: UnixSeconds) -> Decision {
    let proven = principal.filter(|principal| match principal.via {
        Via::ApiToken => true,
        Via::Browser => shape.cookie_counts_at(target.port),
    });
    let exposed = target.record.is_some_and(|record| record.ports.is_none_or(|ports| ports.contains(&target.port)));
    let allow = |because| {
        let user = proven.map(|principal| principal.user.clone());
        Decision::Allow(Grant { user, workspace: target.workspace.clone(), port: target.port, because })
    };
    let is_owner = target.record.zip(proven).is_some_and(|(record, principal)| *record.owner == principal.user);
    if is_owner {
        return if exposed { allow(Because::Owner) } else { Decision::PortNotAllowed };
    }
    let theirs = || {
        let shares = target.record.map_or(&[][..], |record| record.shares);
        // An invalid share, whatever made it, grants nothing.
        let counts = |share: &&Share| share.is_live(now) && share.check().is_ok();
        shares.iter().filter(counts).filter(|share| admits(&share.audience, proven))
    };
    if let Some(share) = theirs().find(|share| share.port == target.port)
        && exposed
    {
        return allow(Because::Shared(share.audience.clone()));
    }
    match proven {
        None if shape.purpose == Purpose::PageVisit => Decision::SignIn,
        None => Decision::Unauthorized,
        // Shares that are public or open to all users do not entitle to know of the workspace, so they do not count
        // here.
        Some(_) if theirs().any(|share| share.audience.is_personal()) => Decision::PortNotAllowed,
        Some(_) => Decision::NotFound,
    }
}

/// Reason why a principal may know of a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// The principal owns it.
    Owner,
    /// A port of it is shared with the principal, or with a group of theirs.
    Shared,
}

/// Decides whether `principal` may know that there is this workspace: the owner, and users with a share by name or
/// group. Shares that are public or open to all users do not count, as in [`decide`].
#[must_use]
pub fn sees(principal: &Principal, record: &Exposure<'_>, now: UnixSeconds) -> Option<Visibility> {
    if *record.owner == principal.user {
        return Some(Visibility::Owner);
    }
    let personal =
        |share: &&Share| share.is_live(now) && share.audience.is_personal() && admits(&share.audience, Some(principal));
    record.shares.iter().find(personal).map(|_| Visibility::Shared)
}

/// Decides whether a request of this `shape` may show `principal` that this workspace exists, and what it has for them.
///
/// # Errors
/// The decision to answer with, which is never [`Decision::Allow`]: the same as at a port, for a user who may know
/// nothing of the workspace.
pub fn may_see(
    principal: Option<&Principal>,
    record: Option<&Exposure<'_>>,
    shape: RequestShape,
    now: UnixSeconds,
) -> Result<Visibility, Decision> {
    let proven = principal.filter(|principal| match principal.via {
        Via::ApiToken => true,
        Via::Browser => shape.cookie_counts(),
    });
    let Some(principal) = proven else {
        let is_visit = shape.purpose == Purpose::PageVisit;
        return Err(if is_visit { Decision::SignIn } else { Decision::Unauthorized });
    };
    record.and_then(|record| sees(principal, record, now)).ok_or(Decision::NotFound)
}

/// Returns the shares of a workspace by which `principal` may reach a port now.
pub fn shared_with<'a>(
    principal: &'a Principal,
    shares: &'a [Share],
    now: UnixSeconds,
) -> impl Iterator<Item = &'a Share> {
    shares.iter().filter(move |share| share.is_live(now) && admits(&share.audience, Some(principal)))
}

fn admits(audience: &Audience, principal: Option<&Principal>) -> bool {
    match audience {
        Audience::Public => true,
        Audience::SignedIn => principal.is_some(),
        Audience::User(user) => principal.is_some_and(|principal| principal.user == *user),
        Audience::Group(group) => principal.is_some_and(|principal| principal.groups.contains(group)),
    }
}

#[cfg(test)]
mod tests;
