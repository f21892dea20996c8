//! The cluster agent: makes a Kubernetes cluster be what a gateway wants of its workspaces, and tells what it sees.

mod config;
mod election;
mod inventory;
mod object;
mod order;
mod prune;
mod reasons;
mod retry;
mod terminate;
mod tracker;
mod view;
