//! Authentication and authorisation: sign-in, browser sessions, API tokens, and the one rule that lets traffic through.
//!
//! A request takes three steps, always in this order: [`request::OfferedCredential`] reads its credential,
//! [`request::Identities`] turns that into a [`Principal`](gateway_types::principal::Principal), and [`policy::decide`] answers. Only the last
//! can make a [`policy::Grant`], and nothing is sent to an agent without one.
//!
//! * [`sign_in`], [`oidc`], [`device`]: sign-in in the browser, with a provider, and of programs.
//! * [`browser`], [`cookie`], [`site`]: sessions of browsers, their cookies, and the address that these belong to.
//! * [`jwt`], [`issuer`], [`keys`]: signed tokens of issuers, and the secrets of resumed sessions.
//! * [`cache`], [`public_ports`], [`expiring`], [`journal`]: answers of the store in memory, and what is written back.
//! * [`attempts`], [`fair`]: bounds on guesses, and on tables that unauthenticated clients fill.
//! * [`shared`]: the store that several replicas share sign-ins in.
//! * [`shape`]: purpose and source of a request, for the rule.

pub mod attempts;
pub mod browser;
pub mod cache;
pub mod cookie;
pub mod device;
pub mod expiring;
pub mod fair;
pub mod issuer;
pub mod journal;
pub mod jwt;
pub mod keys;
pub mod last_offered;
pub mod oidc;
pub mod policy;
pub mod public_ports;
pub mod request;
pub mod shape;
pub mod shared;
pub mod sign_in;
pub mod site;
