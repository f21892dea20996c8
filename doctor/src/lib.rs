//! What `gateway doctor` and `workspace-agent doctor` have in common: findings, the report, judgements, and questions to a
//! gateway's listeners.
//!
//! * [`finding`]: everything that can be found, each with a stable word, why it matters, and how to mend it. Pure.
//! * [`report`]: checks and how they went, as text and as JSON, and whether all is well. Pure.
//! * [`judge`]: facts to findings: clocks, addresses, certificates, limits, versions. Pure.
//! * [`judge::front`]: answers that came through a balancer or a proxy, to findings. Pure.
//! * [`ask`]: questions on a stream that is connected already: the agents' RPC, reflection with its trailers, an upgrade.
//! * [`run`]: checks at the same time, each with a time limit.
//!
//! It dials nothing and reads no configuration: each program does that with the code that it works with. `docs/guide/doctor.md`
//! has a table of the findings, which a test compares with [`finding::FindingId`].

pub mod ask;
pub mod finding;
pub mod judge;
pub mod report;
pub mod run;

pub use finding::{Finding, FindingId, Severity};
pub use report::{Check, Outcome, Report};
