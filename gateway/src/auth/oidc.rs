//! Sign-in with an `OpenID` Connect provider: what is sent, what comes back, and what of it counts. Pure; the network is
//! asked by [`provider`].

pub mod metadata;
