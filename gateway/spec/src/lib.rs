//! Definitions of workspaces and environments: documents of users and operators are parsed, checked with all their
//! problems at once, and made into the definitions that executors carry out.
//!
//! * [`document`]: YAML as a tree that knows its places, within a budget. [`syntax`]: names and amounts that Kubernetes
//!   accepts.
//! * [`devfile`]: the source of a workspace. [`cluster_config`]: the permissions of a cluster.
//! * [`workspace_template`]: an operator's devfile with parameters, which users fill in.
//! * [`frozen`]: a workspace's Kubernetes objects, made once of the two and stored byte for byte; `validate` refuses fields
//!   that it does not know, also in what is stored.
//! * [`project`]: what is cloned into a workspace. [`editor`]: which editor it has.
//! * [`pipeline`]: the definition of a workspace's CI job, made of a devfile. [`shell`]: words that a shell reads.
//! * [`environment`]: environments of CI jobs: facts, names, templates, manifests and labels.
//!
//! `gateway/spec/tests/frozen/`, `pipelines/` and `environments/` beside it have what each version made, for ever.
//!
//! Pure: nothing in this crate's dependencies has a socket, a clock or a runtime.

pub mod cluster_config;
pub mod devfile;
pub mod document;
pub mod editor;
pub mod environment;
pub mod frozen;
#[cfg(test)]
mod hostile_text;
pub mod pipeline;
pub mod project;
pub mod shell;
pub mod syntax;
pub mod workspace_template;
