//! What jobs ask over HTTP, and what they are told.

use e2e::PATIENCE;
use e2e::jobs::{access, wish};
use e2e::raw::Raw;
use gateway_auth::jwt::LEEWAY_SECONDS;
use serde_json::{Value, json};
use tunnel_proto::environments::{Call, ObjectErrorCode};

use super::issuer::{Issuer, now};
use super::support::{CLUSTER, PROJECT, World, asked};

#[tokio::test(flavor = "multi_thread")]
async fn job_is_prepared_with_progress_once_and_what_was_made_goes_when_it_says_that_it_is_stopped() {
    let world = World::start().await;
    let agent = world.agent().await;
    let token = world.job(1, &json!({}));
    let body = asked(&json!({"url": "https://review.example"}));
    let unmet = world.json("POST", "/environments/unmet", &token, &body, 200).await;
    assert_eq!(unmet, json!({"unmet": true, "reason": null}));
    let events = world.events("POST", "/environments/complete", &token, &body).await;
    let kinds: Vec<&str> = events.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["object", "object", "done"], "{events:?}");
    let (first, done) = (&events[0].1, &events[2].1);
    assert_eq!((&first["object"]["kind"], &first["step"]), (&json!("Namespace"), &json!("applied")));
    assert_eq!((&done["outcome"], &done["environment"]["name"]), (&json!("completed"), &json!("review/1")));
    let unmet = world.json("POST", "/environments/unmet", &token, &body, 200).await;
    assert_eq!(unmet, json!({"unmet": false, "reason": "completed"}));
    let again = world.json("POST", "/environments/complete", &token, &body, 200).await;
    assert_eq!(again["outcome"], "completed");
    assert_eq!(agent.calls().len(), 1, "a job that is prepared has nothing done");
    let Call::Apply(apply) = &agent.calls()[0] else { panic!("not applied") };
    assert_eq!(apply.scope.identity.as_ref().unwrap().user, "gitlab:ci_job:1");

    let list = world.json("GET", "/environments?agent=prod", &token, "", 200).await;
    let own = &list["environments"][0];
    assert_eq!((&own["url"], &own["tier"]), (&json!("https://review.example"), &json!("development")));
    assert_eq!((own["objects"].as_array().unwrap().len(), &own["state"]), (2, &json!("available")));
    let path = format!("/environments/{}", own["id"]);
    assert_eq!(&world.json("GET", &path, &token, "", 200).await, own);
    let stopping = world.json("PATCH", &path, &token, r#"{"state":"stopping"}"#, 200).await;
    assert_eq!((&stopping["state"], &stopping["removal_due"]), (&json!("stopping"), &json!(false)));
    assert_eq!(agent.calls().len(), 1, "nothing is deleted before it is stopped");
    let stopped = world.json("PATCH", &path, &token, r#"{"state":"stopped"}"#, 200).await;
    assert_eq!((&stopped["state"], &stopped["removal_due"]), (&json!("stopped"), &json!(true)));
    let events = world.events("GET", &format!("{path}/events"), &token, "").await;
    let done = &events.last().unwrap().1;
    assert_eq!((&done["outcome"], &done["environment"]["objects"]), (&json!("completed"), &json!([])), "{events:?}");
    assert!(matches!(agent.calls().last(), Some(Call::Remove(_))));
    let audit = world.stopped().await;
    assert!(audit.contains("team/app#1") && !audit.contains(&token), "{audit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn token_that_is_not_good_is_refused_by_name() {
    let world = World::start().await;
    let other = Issuer::start().await;
    let body = asked(&json!({}));
    let refused = async |token: &str| world.refused("POST", "/environments/complete", token, &body).await;
    let job = |reason: &str| (401, "job_refused".to_owned(), reason.to_owned());
    assert_eq!(refused("").await, (401, "sign_in_required".to_owned(), String::new()));
    assert_eq!(refused(&world.job(1, &json!({"aud": "https://other.test"}))).await, job("credential_audience"));
    assert_eq!(refused(&world.job(1, &json!({"exp": now() - 3600}))).await, job("credential_expired"));
    assert_eq!(refused(&world.job(1, &json!({"nbf": now() + 3600}))).await, job("credential_not_yet"));
    assert_eq!(refused(&world.job(1, &json!({"iss": "https://other.test"}))).await, job("credential_issuer"));
    assert_eq!(refused(&world.job(1, &json!({"job_id": "x"}))).await, job("credential_claims"));
    assert_eq!(refused(&other.sign(&json!({"iss": world.issuer.url}))).await, job("credential_signature"));
    assert_eq!(refused("a.b.c").await, job("credential_damaged"));
    let good = world.job(1, &json!({}));
    let (head, signature) = good.rsplit_once('.').unwrap();
    assert_eq!(refused(&format!("{head}.{}", signature.to_uppercase())).await.1, "job_refused");
    // A job is nobody anywhere else, and nothing was made of all this.
    for path in ["/whoami", "/workspaces", "/agents", "/environment-templates/default", "/tokens"] {
        assert_eq!(world.refused("GET", path, &good, "").await.1, "sign_in_required", "{path}");
    }
    let all = world.json("GET", "/environments", &world.operator, "", 200).await;
    assert_eq!(all["environments"], json!([]));
    world.gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn job_speaks_of_its_own_environment_alone_and_where_its_project_may() {
    let world = World::start().await;
    let _agent = world.agent().await;
    let token = world.job(1, &json!({}));
    let complete = async |otherwise: Value, more: Value| {
        let token = world.job(2, &otherwise);
        let (status, code, reason) = world.refused("POST", "/environments/complete", &token, &asked(&more)).await;
        (status, format!("{code} {reason}"))
    };
    let refused = |status: u16, code: &str| (status, format!("{code} "));
    let elsewhere = json!({"project_path": "team/other"});
    assert_eq!(complete(elsewhere, json!({})).await, refused(403, "project_not_allowed"));
    let production = json!({"environment": "production"});
    assert_eq!(complete(production.clone(), json!({})).await, refused(403, "environment_not_allowed"));
    let unprotected = json!({"project_path": "team/safe", "project_id": "43"});
    assert_eq!(complete(unprotected, json!({})).await, refused(403, "ref_not_protected"));
    assert_eq!(complete(json!({"environment": null}), json!({})).await, refused(409, "no_environment"));
    assert_eq!(complete(json!({}), json!({"agent": "nowhere"})).await, refused(403, "project_not_allowed"));
    assert_eq!(complete(json!({}), json!({"template": "missing"})).await, refused(404, "no_such_template"));
    assert_eq!(complete(json!({}), json!({"template": "Not-A-Name"})).await, refused(422, "invalid"));
    assert_eq!(complete(json!({}), json!({"more": 1})).await, refused(422, "invalid"));
    assert_eq!(complete(json!({}), json!({"url": "javascript:alert(1)"})).await, refused(422, "facts_invalid"));
    let (status, told) = complete(json!({}), json!({"environment": "review/2"})).await;
    assert_eq!((status, told.as_str()), (401, "job_refused another_environment"));
    let job = json!({"project_id": 1, "project_path": "team/safe", "job_id": 1, "user_id": 1, "username": "eve"});
    let (status, told) = complete(json!({}), json!({"job": job})).await;
    assert_eq!((status, told.as_str()), (401, "job_refused facts_in_token"));

    // Another job's environment is none to it, and operators' work is not its own.
    let other = world.job(3, &json!({"environment": "review/2"}));
    let made = world.json("POST", "/environments/complete", &other, &asked(&json!({})), 200).await;
    let path = format!("/environments/{}", made["environment"]["id"]);
    for (method, path, body) in [
        ("GET", path.clone(), ""),
        ("GET", format!("{path}/events"), ""),
        ("PATCH", path.clone(), r#"{"state":"stopped"}"#),
        ("GET", "/environments/999999".to_owned(), ""),
        ("GET", "/environments/x".to_owned(), ""),
    ] {
        assert_eq!(world.refused(method, &path, &token, body).await.1, "no_such_environment", "{method} {path}");
    }
    assert_eq!(world.refused("DELETE", &path, &token, "").await.1, "forbidden");
    for path in ["/environments/ensure", "/environments/render"] {
        assert_eq!(world.refused("POST", path, &token, "{}").await.2, "not_an_operator", "{path}");
    }
    let list = world.refused("GET", "/environments?agent=prod&name=review/2", &token, "").await;
    assert_eq!(list.2, "another_environment");
    // A job that may not have it made does not say what becomes of it either.
    let unprotected = world.job(4, &json!({"environment": "review/2", "project_path": "team/safe"}));
    let patched = world.refused("PATCH", &path, &unprotected, r#"{"state":"stopped"}"#).await;
    assert_eq!(patched.1, "ref_not_protected");
    // Nor does one that only looks.
    for action in ["access", "verify", "prepare"] {
        let looks = world.job(5, &json!({"environment": "review/2", "environment_action": action}));
        for state in ["stopped", "stopping", "available"] {
            let body = json!({"state": state}).to_string();
            let patched = world.refused("PATCH", &path, &looks, &body).await;
            assert_eq!((patched.0, patched.1.as_str()), (403, "action_not_allowed"), "{action} {state}");
        }
    }
    let stops = world.job(6, &json!({"environment": "review/2", "environment_action": "stop"}));
    world.json("PATCH", &path, &stops, r#"{"state":"stopping"}"#, 200).await;
    world.gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn job_fails_with_every_objects_error() {
    let world = World::start().await;
    let agent = world.agent().await;
    agent.fail(Some(ObjectErrorCode::Forbidden));
    let body = asked(&json!({}));
    let answer = world.call("POST", "/environments/complete", &world.job(1, &json!({})), "", &body).await;
    let problem: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!((answer.status(), &problem["code"]), (409, &json!("objects_failed")), "{problem}");
    let errors = problem["object_errors"].as_array().unwrap();
    assert_eq!((errors.len(), &errors[0]["code"]), (1, &json!("forbidden")));
    assert_eq!(errors[0]["object"]["kind"], "Namespace");
    let events = world.events("POST", "/environments/complete", &world.job(2, &json!({})), &body).await;
    let done = &events.last().unwrap().1;
    assert_eq!((&done["outcome"], &done["code"]), (&json!("failed"), &json!("objects_failed")));
    assert_eq!(done["errors"].as_array().unwrap().len(), 1);
    assert_eq!(done["environment"]["project_id"], PROJECT);
    world.gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_that_may_not_or_that_send_slowly_take_no_seat_of_those_that_may() {
    /// As many as one project has seats.
    const SLOW: usize = 256;
    let world = World::start().await;
    let _agent = world.agent().await;
    let (token, host, body) = (world.job(1, &json!({})), world.public(), asked(&json!({})));
    let head = format!(
        "POST /api/v1/environments/complete HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{{",
        body.len()
    );
    let mut slow = Vec::new();
    for number in 0..SLOW {
        let source = [127, 0, 1, u8::try_from(number / 4 + 1).unwrap()];
        let mut client = Raw::connect_from(source, world.gateway.addresses.public).await;
        client.send(&head).await;
        slow.push(client);
    }
    // One whose head was sent last is read last: once it is answered, all others have been read.
    let made = world.json("POST", "/environments/complete", &world.job(2, &json!({})), &body, 200).await;
    assert_eq!(made["outcome"], "completed");
    let elsewhere = world.job(3, &json!({"project_path": "team/other"}));
    let refused = world.refused("POST", "/environments/complete", &elsewhere, &body).await;
    assert_eq!(refused.1, "project_not_allowed");
    drop(slow);
    world.gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn job_whose_project_may_have_nothing_any_more_hears_nothing_any_more() {
    let world = World::start().await;
    let agent = world.agent().await;
    let token = world.job(1, &json!({}));
    let made = world.json("POST", "/environments/complete", &token, &asked(&json!({})), 200).await;
    let path = format!("/environments/{}", made["environment"]["id"]);
    // Without an agent nothing is removed, so it would be listened to for as long as the token counts.
    drop(agent);
    world.json("PATCH", &path, &token, r#"{"state":"stopped"}"#, 200).await;
    let fields = "accept: text/event-stream\r\nconnection: close\r\n";
    let mut listening = world.begin("GET", &format!("{path}/events?of=removal"), &token, fields, "").await;
    let head = listening.head().await.expect("an answer");
    assert_eq!((head.status(), head.header("content-type")), (200, Some("text/event-stream")));
    world.gateway.let_jobs(vec![access("team/other", "*")], &wish(CLUSTER, "team/other", "review/1", 2)).await;
    let rest = tokio::time::timeout(PATIENCE, listening.read_rest()).await.expect("it ends");
    let rest = String::from_utf8(rest).unwrap();
    assert!(!rest.contains("event: done"), "{rest}");
    world.gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn job_whose_token_has_ended_hears_nothing_any_more() {
    let world = World::start().await;
    // Clocks may differ by a minute.
    let token = world.job(1, &json!({"exp": now() - LEEWAY_SECONDS + 15}));
    let body = asked(&json!({}));
    // No agent is there, so nothing comes of it for longer than the token counts.
    let listening = world.events("POST", "/environments/complete", &token, &body);
    let waiting = world.call("POST", "/environments/complete", &token, "", &body);
    let (heard, answered) = tokio::join!(listening, waiting);
    assert!(!heard.is_empty() && heard.iter().all(|(kind, _)| kind != "done"), "{heard:?}");
    assert_eq!(answered.status(), 401, "{}", answered.text());
    assert!(answered.text().contains("credential_ended"), "{}", answered.text());
    assert_eq!(world.refused("POST", "/environments/complete", &token, &body).await.2, "credential_expired");
    world.gateway.stop().await;
}

#[tokio::test]
async fn token_of_a_job_is_good_for_environments_and_for_no_page_and_no_other_part_of_the_api() {
    let world = World::start().await;
    let token = world.job(1, &json!({}));
    let document = world.call("GET", "/openapi.json", "", "", "").await;
    let document: Value = serde_json::from_slice(&document.body).unwrap();
    let mut asked = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        // Those that are a job's to ask, or for all.
        let is_open = ["/environments", "/openapi.json", "/device", "/ci/"].iter().any(|open| path.starts_with(open));
        if is_open || path.contains("/environments") || path.contains("environment-template") {
            continue;
        }
        let path = path.split('/').map(|part| if part.starts_with('{') { "app" } else { part }).collect::<Vec<_>>();
        let path = path.join("/");
        for method in methods.as_object().unwrap().keys().filter(|method| *method != "parameters") {
            let answer = world.call(&method.to_ascii_uppercase(), &path, &token, "", "").await;
            // A path with a name that is none, or a body that is missing, may be refused before the caller is.
            assert!([400, 401, 404, 415, 422].contains(&answer.status()), "{method} {path}: {answer:?}");
            asked += 1;
        }
    }
    assert!(asked >= 40, "{asked}");
    for (method, path) in [
        ("GET", "/"),
        ("GET", "/live"),
        ("GET", "/create"),
        ("GET", "/me"),
        ("GET", "/help"),
        ("GET", "/workspaces/app"),
        ("GET", "/operator"),
        ("GET", "/operator/audit"),
        ("POST", "/create"),
        ("POST", "/me"),
        ("POST", "/workspaces/app"),
        ("POST", "/operator/users"),
        ("GET", "/.gateway/device"),
    ] {
        let mut client = Raw::connect(world.gateway.addresses.public).await;
        let form =
            "sec-fetch-site: same-origin\r\ncontent-type: application/x-www-form-urlencoded\r\ncontent-length: 0\r\n";
        let head = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {token}\r\n", world.public());
        client.send(format!("{head}{form}\r\n")).await;
        let answer = client.message().await.expect("an answer");
        // A page is refused as to a visitor who is not signed in and opens no tab.
        let expected = if method == "GET" && path != "/live" { 400 } else { 401 };
        assert_eq!(answer.status(), expected, "{method} {path}: {answer:?} {}", answer.text());
    }
}
