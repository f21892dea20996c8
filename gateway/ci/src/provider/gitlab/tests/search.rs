//! What is looked for, how far, and what is said when not everything can be seen.

use super::*;

/// What a pipeline of a run was made with.
fn marked(key: &RunKey) -> Value {
    json!([{"key": "WORKSPACE_GATEWAY_RUN", "value": key.as_str(), "variable_type": "env_var"}])
}

/// Counts the questions for variables since the last time.
fn variables_read(server: &Server) -> usize {
    server.asked().iter().filter(|asked| asked.ends_with("/variables")).count()
}

#[tokio::test]
async fn run_is_looked_for_page_by_page_and_not_before_its_key_was_made() {
    let lab = Lab::new().await;
    let since: UnixSeconds = "2026-11-21T12:00:00Z".parse().unwrap();
    let wanted = marked(&lab.key);
    lab.server.add(1, "running", "2026-11-21T11:00:00.000Z", wanted.clone());
    lab.server.add(2, "running", "2026-11-21T11:56:00.000Z", wanted);
    for id in 3..=140 {
        lab.server.add(id, "running", "2026-11-21T12:00:01.000Z", json!([]));
    }
    let found = lab.gitlab.find(&lab.key, since).await.unwrap().unwrap();
    assert_eq!(found.id, "2", "GitLab's clock may be some minutes behind");
    let lists = lab.server.asked().into_iter().filter(|asked| asked.starts_with("GET /pipelines?")).collect::<Vec<_>>();
    assert_eq!(lists.len(), 2, "{lists:?}");
    assert_eq!(
        lists[0],
        "GET /pipelines?source=api&ref=main&updated_after=2026-11-21T11:55:00Z&order_by=id&sort=desc&per_page=100&page=1"
    );
    let later: UnixSeconds = "2026-11-21T12:05:02Z".parse().unwrap();
    assert_eq!(lab.gitlab.find(&lab.key, later).await.unwrap(), None);
    let asked = lab.server.asked();
    assert_eq!(asked.len(), 1, "what is older is not looked into: {asked:?}");
}

#[tokio::test]
async fn crowd_that_looks_for_its_runs_reads_each_pipeline_once() {
    let lab = Lab::new().await;
    let since: UnixSeconds = "2026-11-21T12:00:00Z".parse().unwrap();
    let keys: Vec<RunKey> = (0..40).map(|_| RunKey::generate().unwrap()).collect();
    for (id, key) in (1..).zip(&keys) {
        lab.server.add(id, "running", "2026-11-21T12:00:01.000Z", marked(key));
    }
    for id in 41..=60 {
        lab.server.add(id, "running", "2026-11-21T12:00:01.000Z", json!([]));
    }
    for (id, key) in (1_u64..).zip(&keys) {
        let found = lab.gitlab.find(key, since).await.unwrap().map(|run| run.id);
        assert_eq!(found, Some(id.to_string()));
    }
    assert_eq!(lab.gitlab.find(&lab.key, since).await.unwrap(), None);
    assert_eq!(variables_read(&lab.server), 60);
    // Those that were made here are known from the start.
    let made = lab.create(&[]).await.unwrap();
    assert_eq!(lab.gitlab.find(&lab.key, since).await.unwrap(), Some(made));
    assert_eq!(variables_read(&lab.server), 0);
}

#[tokio::test]
async fn search_that_could_not_look_into_everything_never_says_that_nothing_is_there() {
    let lab = Lab::new().await;
    let since: UnixSeconds = "2026-11-21T12:00:00Z".parse().unwrap();
    let now = wall_clock().to_string();
    lab.server.add(1, "running", &now, marked(&lab.key));
    lab.server.add(2, "running", &now, Value::Null);
    let found = lab.gitlab.find(&lab.key, since).await.unwrap().unwrap();
    assert_eq!(found.id, "1", "what is found is found");
    let other = RunKey::generate().unwrap();
    let error = lab.gitlab.find(&other, since).await.unwrap_err();
    assert!(error.is_temporary() && error.to_string().contains("variables of pipeline 2: 403 Forbidden"), "{error}");
    // It may be the one that is asked for again.
    let lab = Lab { key: other, ..lab };
    lab.server.asked();
    assert!(lab.create_again().await.unwrap_err().is_temporary());
    assert!(lab.server.asked().iter().all(|asked| asked.starts_with("GET ")), "no second one is made");
    lab.server.change(2, |pipeline| pipeline.variables = marked(&lab.key));
    assert_eq!(lab.create_again().await.unwrap().id, "2");
}

#[tokio::test]
async fn search_among_too_many_pipelines_goes_on_where_it_was_or_says_that_there_are_too_many() {
    let lab = Lab::new().await;
    let since: UnixSeconds = "2026-11-21T12:00:00Z".parse().unwrap();
    lab.server.add(1, "running", "2026-11-21T12:00:01.000Z", marked(&lab.key));
    for id in 2..=700 {
        lab.server.add(id, "running", "2026-11-21T12:00:01.000Z", json!([]));
    }
    let error = lab.gitlab.find(&lab.key, since).await.unwrap_err();
    assert!(error.is_temporary() && error.to_string().contains("500 pipelines were looked at"), "{error}");
    assert_eq!(variables_read(&lab.server), 500);
    assert_eq!(lab.gitlab.find(&lab.key, since).await.unwrap().unwrap().id, "1");
    assert_eq!(variables_read(&lab.server), 200);
    for id in 701..=5_001 {
        lab.server.add(id, "running", "2026-11-21T12:00:01.000Z", json!([]));
        lab.gitlab.known.learn(id, None);
    }
    let error = lab.gitlab.find(&lab.key, since).await.unwrap_err();
    assert!(error.is_temporary() && error.to_string().contains("more than 5000 pipelines"), "{error}");
}
