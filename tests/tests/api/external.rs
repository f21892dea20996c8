//! External workspaces: each user makes and deletes their own, over the API, the command line and the page.

use e2e::browser::Browser;
use e2e::{TestAgent, until};
use gateway_cli::Exit;
use gateway_store::wall_clock;

use super::cli::{Desk, login};
use super::support::{World, code};

fn external(name: &str) -> String {
    format!(r#"{{"name":"{name}","executor":"external"}}"#)
}

#[tokio::test]
async fn user_makes_and_deletes_external_workspaces_and_the_name_is_free_again() {
    let world = World::configured(|config| config.limits.external_workspaces_per_user = 2).await;
    let (ann, bob) = (world.user("ann").await, world.user("bob").await);
    let made = world.json("POST", "/workspaces", &ann, &external("my-app"), 201).await;
    assert_eq!((&made["executor"], &made["access"], &made["agent"]), (&"external".into(), &"owner".into(), &().into()));
    let token = world.json("POST", "/tokens", &ann, r#"{"kind":"agent","workspace":"second"}"#, 201).await;
    let third = world.json("POST", "/tokens", &ann, r#"{"kind":"agent","workspace":"third"}"#, 409).await;
    assert_eq!(third["reason"], "limits.external_workspaces_per_user");
    let third = world.json("POST", "/workspaces", &ann, &external("third"), 409).await;
    assert_eq!(third["reason"], "limits.external_workspaces_per_user");
    for body in [external("my-app"), external("second")] {
        assert_eq!(world.json("POST", "/workspaces", &bob, &body, 409).await["reason"], "name_taken");
    }
    let other = world.call("DELETE", "/workspaces/second", &bob, "").await;
    assert_eq!((other.status(), code(&other)), (404, "not_found"));

    let mut agent: TestAgent = world.gateway.start_agent(token["token"].as_str().unwrap(), Vec::new());
    world.gateway.until_connected("second").await;
    let gone = world.call("DELETE", "/workspaces/second", &ann, "").await;
    assert_eq!(gone.status(), 204, "{}", gone.text());
    // At once, and not when its token is asked for again: another may have the name already.
    assert!(world.gateway.registry.current(&"second".parse().unwrap()).is_none());
    assert!(agent.ended().await.is_err(), "its token counts no more");
    assert_eq!(
        world.json("POST", "/workspaces", &bob, &external("second"), 409).await["reason"],
        "name_taken",
        "held back"
    );
    world.json("POST", "/workspaces", &ann, &external("second"), 201).await;
    assert_eq!(world.audited("workspace_created", 3).await.len(), 3);
    assert_eq!(world.audited("workspace_forgotten", 1).await[0]["workspace"], "second");
}

#[tokio::test]
async fn external_workspace_takes_nothing_but_a_name_and_is_not_started() {
    let world = World::start().await;
    let more = r#"{"name":"my-app","executor":"external","devfile":"schemaVersion: 2.2.0"}"#;
    assert_eq!(world.json("POST", "/workspaces", &world.dev(), more, 422).await["code"], "invalid");
    world.json("POST", "/workspaces", &world.dev(), &external("my-app"), 201).await;
    let refused = world.call("PATCH", "/workspaces/my-app", &world.dev(), r#"{"desired_state":"Stopped"}"#).await;
    assert_eq!((refused.status(), code(&refused)), (409, "conflict"));
}

#[tokio::test]
async fn no_user_makes_any_where_that_is_left_to_the_operator() {
    let world = World::configured(|config| config.limits.external_workspaces_per_user = 0).await;
    let refused = world.json("POST", "/workspaces", &world.dev(), &external("my-app"), 409).await;
    assert_eq!(refused["reason"], "limits.external_workspaces_per_user");
    let (name, ann) = ("operators".parse().unwrap(), "ann".parse().unwrap());
    assert!(world.gateway.store.create_agent_token(&name, &ann, wall_clock()).await.is_ok());
}

#[tokio::test]
async fn commands_make_and_delete_external_workspaces() {
    let world = World::start().await;
    let (desk, cookie) = (Desk::new(), world.browser().await);
    login(&world, &desk, &cookie).await;
    let url = desk.done("workspace create my-app --executor external").await;
    assert!(url.starts_with("http://my-app.localhost:"), "{url}");
    assert!(desk.done("token create --workspace other").await.starts_with("gwa_"));
    let (exit, _, err) = desk.run("workspace create third --executor external --agent one").await;
    assert_eq!((exit, err.contains("--agent")), (Exit::Failed, true), "{err}");
    assert_eq!(desk.done("workspace rename other Shop").await.trim(), "other is called Shop");
    let other = world.json("GET", "/workspaces/other", &world.dev(), "", 200).await;
    assert_eq!(other["display_name"], "Shop");
    let renamed =
        serde_json::from_str::<serde_json::Value>(&desk.done("workspace rename other -o json").await).unwrap();
    assert_eq!(renamed, serde_json::json!({"name": "other", "display_name": null}));
    desk.done("workspace create given --executor external").await;
    let (exit, _, err) = desk.run("workspace hand-over given --to bob").await;
    assert_eq!((exit, err.contains("--yes")), (Exit::Usage, true), "{err}");
    let given = desk.done("workspace hand-over given --to bob --yes --output json").await;
    assert_eq!(serde_json::from_str::<serde_json::Value>(&given).unwrap()["owner"], "bob");
    desk.done("workspace terminate my-app --yes").await;
    let list = desk.done("workspace list").await;
    assert!(list.contains("other") && !list.contains("my-app") && !list.contains("given"), "{list}");
}

#[tokio::test]
async fn page_of_an_external_workspace_shows_its_ports_and_deletes_it() {
    let world = World::start().await;
    let mut browser = Browser::default();
    browser.follow(&world.gateway.sign_in_link).await;
    let home = format!("http://{}/", world.public());
    assert!(browser.visit(&home).await.text().contains("No workspaces yet."));
    let me = browser.visit(&format!("{home}me")).await.text();
    assert!(me.contains(&format!("gateway login --gateway http://{}", world.public())), "{me}");
    world.json("POST", "/workspaces", &world.dev(), &external("my-app"), 201).await;
    let address = format!("{home}workspaces/my-app");
    let page = browser.visit(&address).await;
    assert!(page.status() == 200 && page.text().contains("Not connected"), "{}", page.text());
    let agent = world.gateway.agent("my-app").await;
    let page = browser.visit(&address).await.text();
    assert!(page.contains("Connected for") && page.contains("<table>"), "{page}");
    let form = "sec-fetch-site: same-origin\r\nsec-fetch-mode: navigate\r\nsec-fetch-dest: document\r\n\
        content-type: application/x-www-form-urlencoded\r\naccept: text/html\r\n";
    let foreign = form.replace("same-origin", "cross-site");
    assert_eq!(browser.ask("POST", &address, &foreign, "action=delete").await.status(), 401);
    let deleted = browser.ask("POST", &address, form, "action=delete").await;
    assert_eq!((deleted.status(), deleted.header("location")), (303, Some("/")), "{}", deleted.text());
    until("the session is gone", || world.gateway.registry.current(&"my-app".parse().unwrap()).is_none()).await;
    assert_eq!(browser.visit(&address).await.status(), 404);
    agent.kill();
}
