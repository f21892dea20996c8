//! Finds the pipeline of a run in a project: reads the list, and the variables of each candidate.
//!
//! The variables that a pipeline was made with never change, so the run that they name is read once and remembered:
//! concurrent searches read each pipeline once, not each of them all. An incomplete search returns an error.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;

use super::answer::{Pipeline, PipelineVariable};
use super::{Gitlab, PAGE, reference, request};
use crate::provider::{ProviderError, RUN_VARIABLE, RunKey, RunRef};
use gateway_types::UnixSeconds;

/// Most that GitLab's clock may be behind the gateway's when a run is searched for.
const CLOCK_SLACK: Duration = Duration::from_mins(5);

/// Most pages of pipelines that are searched for one run, each of [`PAGE`].
const PAGES_MAX: usize = 50;

/// Pipelines whose variables one search reads. The next one goes on from there, and others get their turn between.
const READS_MAX: usize = 500;

/// Pipelines whose runs are remembered: some 100 bytes each.
const KNOWN_MAX: usize = 10_000;

// Otherwise a search could forget what it needs in the end, and none would ever be complete.
const _: () = assert!(PAGES_MAX * PAGE <= KNOWN_MAX);

/// Runs of pipelines, by the pipelines' numbers; `None` for those that are no run.
#[derive(Debug, Default)]
pub(super) struct KnownPipelines(Mutex<BTreeMap<u64, Option<RunKey>>>);

impl KnownPipelines {
    /// Remembers the run of a pipeline. The oldest pipelines are forgotten first.
    pub(super) fn learn(&self, pipeline: u64, key: Option<RunKey>) {
        let mut known = self.0.lock();
        known.insert(pipeline, key);
        while known.len() > KNOWN_MAX {
            known.pop_first();
        }
    }

    /// Returns whether a pipeline is this run; `None` if that is not known.
    fn is_of(&self, pipeline: u64, key: &RunKey) -> Option<bool> {
        self.0.lock().get(&pipeline).map(|known| known.as_ref() == Some(key))
    }
}

/// Progress of a search.
#[derive(Debug, Default)]
struct Search {
    reads: usize,
    /// Reason why one of the pipelines could not be read.
    unseen: Option<String>,
}

impl Search {
    /// Ends a search without a result.
    fn nothing(self) -> Result<Option<RunRef>, ProviderError> {
        match self.unseen {
            None => Ok(None),
            Some(why) => Err(ProviderError::Unsure { why }),
        }
    }
}

impl Gitlab {
    /// Finds the run of a key that was stored at `since`.
    pub(in crate::provider) async fn find(
        &self,
        key: &RunKey,
        since: UnixSeconds,
    ) -> Result<Option<RunRef>, ProviderError> {
        let since = UnixSeconds::new(since.get().saturating_sub(i64::try_from(CLOCK_SLACK.as_secs()).unwrap_or(0)));
        let mut search = Search::default();
        for page in 1..=PAGES_MAX {
            // Pipelines made since then were changed since then too; GitLab knows the other filter only since 17.
            let path = format!(
                "/pipelines?source=api&ref={}&updated_after={since}&order_by=id&sort=desc&per_page={PAGE}&page={page}",
                request::encoded(&self.api.settings().reference),
            );
            let pipelines: Vec<Pipeline> = self.get("list pipelines", &path).await?;
            let is_last = pipelines.len() < PAGE;
            for pipeline in pipelines {
                if pipeline.created_at().is_some_and(|created_at| created_at < since) {
                    return search.nothing();
                }
                if self.is_of(pipeline.id, key, &mut search).await? {
                    return Ok(Some(reference(&pipeline)));
                }
            }
            if is_last {
                return search.nothing();
            }
        }
        let why = format!("the project has more than {} pipelines since it was asked for", PAGES_MAX * PAGE);
        Err(ProviderError::Unsure { why })
    }

    /// Returns whether a pipeline is the wanted run, or notes that this cannot be determined.
    async fn is_of(&self, pipeline: u64, key: &RunKey, search: &mut Search) -> Result<bool, ProviderError> {
        if let Some(is_it) = self.known.is_of(pipeline, key) {
            return Ok(is_it);
        }
        if search.reads == READS_MAX {
            search.unseen = Some(format!("{READS_MAX} pipelines were looked at, and there are more"));
            return Ok(false);
        }
        search.reads += 1;
        let path = format!("/pipelines/{pipeline}/variables");
        let found: Result<Vec<PipelineVariable>, _> = self.get("read a pipeline's variables", &path).await;
        let variables = match found {
            Ok(variables) => variables,
            // It was deleted meanwhile, and its jobs with it.
            Err(ProviderError::Refused { status: 404, .. }) => return Ok(false),
            // GitLab shows variables to the pipeline's creator and to maintainers: one made with another token may be
            // the run.
            Err(ProviderError::Forbidden { why, .. }) => {
                search.unseen = Some(format!("the token may not read the variables of pipeline {pipeline}: {why}"));
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        let run = variables.into_iter().find(|variable| variable.key == RUN_VARIABLE);
        let run: Option<RunKey> = run.and_then(|variable| variable.value?.parse().ok());
        let is_it = run.as_ref() == Some(key);
        self.known.learn(pipeline, run);
        Ok(is_it)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_pipelines_are_forgotten_first() {
        let (known, key) = (KnownPipelines::default(), RunKey::generate().unwrap());
        let last = u64::try_from(KNOWN_MAX).unwrap() + 1;
        for pipeline in 1..=last {
            known.learn(pipeline, (pipeline == last).then(|| key.clone()));
        }
        known.learn(last, Some(key.clone()));
        assert_eq!([1, 2, last].map(|pipeline| known.is_of(pipeline, &key)), [None, Some(false), Some(true)]);
        assert_eq!(known.0.lock().len(), KNOWN_MAX);
    }
}
