//! Steps of a workspace's start, for its owner: what is done, what goes on, what comes next.

use std::cmp::Ordering;

use gateway_store::{CiState, ManagedWorkspace, Runs};
use gateway_types::start_progress::{StartProgress, StartStep};
use gateway_types::{ActualState, DesiredState};

/// Name and text of the steps that are not of a pod.
const OBJECTS: Step = ("objects", "its objects are in the cluster");
const PIPELINE: Step = ("pipeline", "the CI system has its pipeline");
const JOB: Step = ("job", "its job runs");
const AGENT: Step = ("agent", "its agent is connected");

/// Names of the steps, for programs.
pub const STEPS: [&str; 8] = ["objects", "node", "tools", "projects", "containers", "pipeline", "job", "agent"];

/// Name, and words that say what is so once it is done.
type Step = (&'static str, &'static str);

/// Names of what a step can be, for programs.
pub const STATUSES: [&str; 3] = ["done", "now", "next"];

/// A step of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartRow {
    /// Its name, one of [`STEPS`].
    pub step: &'static str,
    /// One of [`STATUSES`].
    pub status: &'static str,
    /// What is so once it is done, for people.
    pub text: &'static str,
}

/// Returns the steps of a workspace that is about to run; none of any other.
#[must_use]
pub fn steps(managed: &ManagedWorkspace) -> Vec<StartRow> {
    let life = &managed.lifecycle;
    let is_there = match life.actual {
        ActualState::Running | ActualState::Terminating | ActualState::Terminated => true,
        ActualState::CreationRequested
        | ActualState::Starting
        | ActualState::Stopping
        | ActualState::Stopped
        | ActualState::Failed
        | ActualState::Error
        | ActualState::Unknown => false,
    };
    if life.desired != DesiredState::Running || is_there {
        return Vec::new();
    }
    match &managed.runs {
        Runs::Kubernetes(state) => in_cluster(state.applied_generation, managed.start_progress(), life.generation),
        Runs::Ci(state) => in_job(state, life.generation),
    }
}

fn in_cluster(applied: u64, pod: Option<StartProgress>, generation: u64) -> Vec<StartRow> {
    let is_applied = applied >= generation;
    // Until the pod is there: what every start has.
    let pod = pod.unwrap_or_else(|| StartProgress {
        steps: vec![StartStep::Node, StartStep::Tools, StartStep::Containers, StartStep::Agent],
        done: 0,
    });
    let done = if is_applied { pod.done + 1 } else { 0 };
    rows([OBJECTS].into_iter().chain(pod.steps.iter().map(|step| (step.as_str(), of_pod(*step)))), done)
}

fn of_pod(step: StartStep) -> &'static str {
    match step {
        StartStep::Node => "its pod has a node",
        StartStep::Tools => "agent and editor are copied into the pod",
        StartStep::Projects => "its projects are cloned",
        StartStep::Containers => "its images are on the node, and its containers run",
        StartStep::Agent => AGENT.1,
    }
}

fn in_job(state: &CiState, generation: u64) -> Vec<StartRow> {
    // The run before says nothing about this start.
    let run = state.run.as_ref().filter(|run| run.is_live() && run.intent >= generation);
    let facts = run.map_or([false; 2], |run| [run.pipeline.is_some(), run.started_at.is_some()]);
    rows([PIPELINE, JOB, AGENT].into_iter(), facts.iter().take_while(|is_done| **is_done).count())
}

fn rows(steps: impl Iterator<Item = Step>, done: usize) -> Vec<StartRow> {
    let [over, now, next] = STATUSES;
    let status = |number: usize| match number.cmp(&done) {
        Ordering::Less => over,
        Ordering::Equal => now,
        Ordering::Greater => next,
    };
    steps.enumerate().map(|(number, (step, text))| StartRow { step, status: status(number), text }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(rows: &[StartRow]) -> String {
        rows.iter().map(|row| format!("{}:{}", row.step, row.status)).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn steps_of_a_pod_count_once_its_objects_are_applied() {
        let pod =
            || Some(StartProgress { steps: vec![StartStep::Node, StartStep::Projects, StartStep::Agent], done: 1 });
        assert_eq!(words(&in_cluster(2, pod(), 2)), "objects:done node:done projects:now agent:next");
        assert_eq!(
            words(&in_cluster(1, pod(), 2)),
            "objects:now node:next projects:next agent:next",
            "the pod is of an earlier intent"
        );
        assert_eq!(words(&in_cluster(2, None, 2)), "objects:done node:now tools:next containers:next agent:next");
    }

    #[test]
    fn every_step_has_its_name_among_those_that_the_schema_lists() {
        let pod = StartProgress {
            steps: vec![
                StartStep::Node,
                StartStep::Tools,
                StartStep::Projects,
                StartStep::Containers,
                StartStep::Agent,
            ],
            done: 0,
        };
        let rows = in_cluster(1, Some(pod), 1).into_iter().chain(rows([PIPELINE, JOB].into_iter(), 0));
        assert!(rows.map(|row| row.step).all(|step| STEPS.contains(&step)));
    }
}
