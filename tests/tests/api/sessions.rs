//! A user's browsers: listed by ids that open nothing, and signed out one by one or all at once.

use super::support::{As, SAME_ORIGIN, World};

#[tokio::test]
async fn session_is_listed_by_an_id_that_opens_nothing_and_ended_by_it() {
    let world = World::start().await;
    let cookie = world.browser().await;
    let browser = As::Cookie(cookie.clone(), SAME_ORIGIN);
    let listed = world.json("GET", "/sessions", &browser, "", 200).await;
    let rows = listed["sessions"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[0]["current"]), (1, &true.into()));
    assert_eq!((&rows[0]["address"], &rows[0]["sign_ins"]), (&"127.0.0.1".into(), &serde_json::json!([])));
    let id = rows[0]["id"].as_str().unwrap();
    let secret = cookie.split_once('=').unwrap().1;
    assert!(!listed.to_string().contains(secret) && !secret.contains(id.trim_start_matches("s-")));
    for guess in [id, id.trim_start_matches("s-")] {
        let forged = As::Cookie(format!("gateway_session={guess}"), SAME_ORIGIN);
        assert_eq!(world.call("GET", "/whoami", &forged, "").await.status(), 401);
    }
    let by_token = world.json("GET", "/sessions", &world.dev(), "", 200).await;
    assert_eq!(by_token["sessions"][0]["current"], false, "a token is no session");
    assert_eq!(world.json("GET", "/whoami", &browser, "", 200).await["session"], id);

    let eve = world.user("eve").await;
    assert_eq!(world.call("DELETE", &format!("/sessions/{id}"), &eve, "").await.status(), 404);
    assert_eq!(world.call("GET", "/whoami", &browser, "").await.status(), 200);
    world.json("DELETE", &format!("/sessions/{id}"), &browser, "", 204).await;
    assert_eq!(world.call("GET", "/whoami", &browser, "").await.status(), 401);
}

#[tokio::test]
async fn signing_out_everywhere_ends_browsers_and_leaves_tokens() {
    let world = World::start().await;
    let browser = As::Cookie(world.browser().await, SAME_ORIGIN);
    world.json("DELETE", "/sessions", &world.dev(), "", 204).await;
    assert_eq!(world.call("GET", "/whoami", &browser, "").await.status(), 401);
    assert_eq!(world.call("GET", "/whoami", &world.dev(), "").await.status(), 200);
    let ended = world.audited("signed_out", 1).await;
    assert_eq!(ended[0]["sessions"]["items"].as_array().unwrap().len(), 1, "{ended:?}");
}
