//! No peer between the load and the app: the limit of the machine itself.

use futures_util::FutureExt as _;

use super::program::Programs;
use super::{Peer, RoutingKind};

/// The app itself.
pub(super) const DIRECT: Peer = Peer {
    name: "direct",
    kind: RoutingKind::Port,
    encrypted: false,
    programs: Programs(&[]),
    about: "the app itself, over plain TCP",
    raise: |crew| async { crew.over_link(crew.backend) }.boxed(),
};
