//! GitLab's system hook.

use serde_json::json;

use super::support::{HOOK_SECRET, PROJECT, World, asked};

const PATH: &str = "/environments/hooks/gitlab";

#[tokio::test(flavor = "multi_thread")]
async fn hook_with_the_secret_sweeps_what_a_deleted_project_had_and_no_other_is_heard() {
    let world = World::start().await;
    let agent = world.agent().await;
    let made = world.json("POST", "/environments/complete", &world.job(1, &json!({})), &asked(&json!({})), 200).await;
    let event = json!({"event_name": "project_destroy", "project_id": PROJECT, "path_with_namespace": "team/app"});
    let event = event.to_string();
    let hook = async |secret: &str, body: &str| {
        let more = if secret.is_empty() { String::new() } else { format!("x-gitlab-token: {secret}\r\n") };
        let answer = world.call("POST", PATH, "", &more, body).await;
        (answer.status(), answer.header("gateway-error").unwrap_or_default().to_owned())
    };
    for wrong in ["", "a-secret-of-the-hooK", "a-secret", &HOOK_SECRET.repeat(2)] {
        assert_eq!(hook(wrong, &event).await, (401, "hook_refused".to_owned()), "{wrong}");
    }
    assert_eq!(world.refused("POST", PATH, &world.operator, &event).await.1, "hook_refused", "an operator is no hook");
    assert_eq!(hook(HOOK_SECRET, r#"{"event_name":"project_create","project_id":42}"#).await.0, 204);
    assert_eq!(hook(HOOK_SECRET, &format!(r#"{{"event_name":"push","x":"{}"}}"#, "x".repeat(70_000))).await.0, 204);
    assert_eq!(hook(HOOK_SECRET, "[").await, (400, "bad_request".to_owned()));
    assert_eq!(hook(HOOK_SECRET, r#"{"event_name":"project_destroy"}"#).await, (422, "invalid".to_owned()));
    let path = format!("/environments/{}", made["environment"]["id"]);
    assert_eq!(world.json("GET", &path, &world.operator, "", 200).await["state"], "available");
    assert_eq!(hook(HOOK_SECRET, &event).await.0, 204);
    let swept = world.json("GET", &path, &world.operator, "", 200).await;
    assert_eq!((&swept["state"], &swept["reason"]), (&json!("stopped"), &json!("project_deleted")));
    let events = world.events("GET", &format!("{path}/events"), &world.operator, "").await;
    assert_eq!(events.last().unwrap().1["environment"]["objects"], json!([]));
    assert_eq!(agent.calls().len(), 2);
    // A token outlives its project, and revives nothing.
    let refused = world.refused("POST", "/environments/complete", &world.job(2, &json!({})), &asked(&json!({}))).await;
    assert_eq!((refused.0, refused.1.as_str()), (409, "project_deleted"));
    assert_eq!(agent.calls().len(), 2);
    let audit = world.stopped().await;
    assert!(audit.contains("environments_swept") && !audit.contains(HOOK_SECRET), "{audit}");
}
