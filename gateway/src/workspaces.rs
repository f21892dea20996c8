//! Workspaces that an executor runs for their owners: what a person asked for, checked once, what is made of it and frozen, and
//! what of that is sent when (design, section 6).
//!
//! [`devfile`] reads what a workspace is made from, [`cluster_config`] what a cluster allows. Both are pure and stand
//! on [`document`] (YAML with places) and [`syntax`] (what Kubernetes accepts as names and amounts). [`frozen`] makes Kubernetes
//! objects of the two, once; [`pipeline`] makes the definition of a CI job of a devfile; [`sending`] says what of them is sent, [`observed`]
//! what a report makes of a workspace. [`service`] is where its owner's wishes come in.

pub mod addresses;
pub mod blockers;
pub mod changes;
pub mod ci;
pub mod cluster_config;
pub mod devfile;
pub mod document;
pub mod frozen;
pub mod observed;
pub mod pipeline;
pub mod sending;
pub mod service;
mod shell;
pub mod syntax;
