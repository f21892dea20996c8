//! `gateway environment` in jobs and for operators, against a running gateway.

use std::collections::BTreeMap;

use clap::Parser as _;
use e2e::buffer::Buffer;
use gateway::cli::{Cli, Command, Console, Exit, run_environment};
use serde_json::{Value, json};
use tunnel_proto::environments::ObjectErrorCode;

use super::support::World;

/// Where a command runs: its variables.
struct Shell(BTreeMap<String, String>);

impl Shell {
    /// A CI job's.
    fn of_job(world: &World, token: &str) -> Self {
        let variables =
            [("GATEWAY_URL", format!("http://{}", world.public())), ("GATEWAY_JOB_TOKEN", token.to_owned())];
        Self(variables.map(|(name, value)| (name.to_owned(), value)).into())
    }

    /// An operator's.
    fn of_operator(world: &World) -> Self {
        let file = world.file("operator", &world.operator).display().to_string();
        let variables = [("GATEWAY_URL", format!("http://{}", world.public())), ("GATEWAY_TOKEN_FILE", file)];
        Self(variables.map(|(name, value)| (name.to_owned(), value)).into())
    }

    async fn run(&self, words: &str) -> (Exit, String, String) {
        let (out, err) = (Buffer::default(), Buffer::default());
        let words = format!("gateway environment {words}");
        let cli = Cli::try_parse_from(words.split_whitespace()).unwrap();
        let mut console = Console::new(Box::new(out.clone()), Box::new(err.clone()), false);
        let Command::Environment(args) = &cli.command else { panic!("{cli:?}") };
        let exit = run_environment(args, &self.0, &mut console).await;
        (exit, out.text(), err.text())
    }
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn job_has_its_environment_ready_and_ends_it_with_a_line_for_each_thing() {
    let world = World::start().await;
    let agent = world.agent().await;
    let token = world.job(1, &json!({}));
    let shell = Shell::of_job(&world, &token);
    let (exit, out, err) = shell.run("ensure --agent prod --url https://review.example").await;
    assert_eq!((exit, out.as_str()), (Exit::Success, ""), "{err}");
    assert!(
        err.contains("Namespace review-1") && err.contains(" applied\n") && err.contains("is ready, after"),
        "{err}"
    );
    let (exit, out, _) = shell.run("ensure --agent prod --output json").await;
    assert_eq!(exit, Exit::Success);
    let last = lines(&out).pop().unwrap();
    assert_eq!((&last["event"], &last["outcome"]), (&json!("done"), &json!("completed")));
    assert_eq!(agent.calls().len(), 1);

    let (exit, out, _) = shell.run("show --agent prod").await;
    assert_eq!(exit, Exit::Success);
    for word in ["review/1", "available since", "https://review.example", "Namespace review-1"] {
        assert!(out.contains(word), "{word}: {out}");
    }
    let (_, out, _) = shell.run("show --agent prod --output json").await;
    let shown: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(shown["state"], "available");

    // The token may come in a file as well.
    let file = world.file("job", &token);
    let url = format!("--gateway http://{} --token-file {}", world.public(), file.display());
    let bare = Shell(BTreeMap::new());
    let (exit, _, err) = bare.run(&format!("stop --agent prod --begin {url}")).await;
    assert!(exit == Exit::Success && err.contains("review/1 is stopping"), "{err}");
    let (exit, _, err) = bare.run(&format!("stop --agent prod {url}")).await;
    assert!(exit == Exit::Success && err.contains("is gone, after"), "{err}");
    let (exit, out, _) = shell.run("stop --agent prod --output json").await;
    assert_eq!((exit, &lines(&out)[0]["environment"]["state"]), (Exit::Success, &json!("stopped")), "{out}");
    for (words, shown) in [(&out, "id_token"), (&err, "id_token")] {
        assert!(!words.contains(&token), "{shown}");
    }
    world.gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn command_that_is_refused_or_fails_says_why_and_ends_with_1() {
    let world = World::start().await;
    let agent = world.agent().await;
    let expired = world.job(1, &json!({"exp": super::issuer::now() - 3600}));
    let (exit, _, err) = Shell::of_job(&world, &expired).run("ensure --agent prod").await;
    assert!(exit == Exit::Failed && err.contains("credential_expired"), "{err}");
    let shell = Shell::of_job(&world, &world.job(1, &json!({})));
    let (exit, _, err) = shell.run("ensure --agent prod --environment review/2").await;
    assert!(exit == Exit::Failed && err.contains("another_environment"), "{err}");
    let (exit, out, _) = shell.run("ensure --agent nowhere --output json").await;
    assert_eq!((exit, &lines(&out)[0]["code"]), (Exit::Failed, &json!("project_not_allowed")));
    agent.fail(Some(ObjectErrorCode::Forbidden));
    let (exit, _, err) = shell.run("ensure --agent prod").await;
    assert!(exit == Exit::Failed && err.contains("objects_failed") && err.contains("(forbidden)"), "{err}");
    let (exit, _, err) =
        Shell::of_job(&world, &world.job(2, &json!({"environment": "review/3"}))).run("stop --agent prod").await;
    assert!(exit == Exit::Success && err.contains("nothing was ever made"), "{err}");
    let shell = Shell::of_job(&world, &world.job(5, &json!({})));
    let (exit, _, err) = shell.run("ensure --agent prod --template missing").await;
    assert!(exit == Exit::Failed && err.contains("no_such_template"), "{err}");
    world.gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_that_is_too_long_ends_with_1_and_the_gateway_goes_on() {
    let world = World::start().await;
    let shell = Shell::of_job(&world, &world.job(1, &json!({})));
    let (exit, _, err) = shell.run("ensure --agent prod --timeout 1s").await;
    assert!(exit == Exit::Failed && err.contains("not within 1s"), "{err}");
    let _agent = world.agent().await;
    let (exit, _, err) = shell.run("ensure --agent prod --timeout 30s").await;
    assert_eq!(exit, Exit::Success, "{err}");
    world.gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_says_which_environment_and_a_job_does_not() {
    let world = World::start().await;
    let _agent = world.agent().await;
    let shell = Shell::of_operator(&world);
    let which = "--agent prod --project 42 --environment review/1";
    let (exit, _, err) = shell.run(&format!("ensure {which} --project-path team/app --tier development")).await;
    assert!(exit == Exit::Success && err.contains("review/1 is ready"), "{err}");
    let (exit, out, _) = shell.run(&format!("show {which}")).await;
    assert!(exit == Exit::Success && out.contains("development"), "{out}");
    let (exit, _, err) = shell.run(&format!("stop {which}")).await;
    assert!(exit == Exit::Success && err.contains("is gone"), "{err}");
    let (exit, _, err) = shell.run("stop --agent prod --project 42 --environment review/none").await;
    assert!(exit == Exit::Failed && err.contains("no such environment"), "{err}");
    for words in ["show --agent prod", &format!("ensure {which}")] {
        assert_eq!(shell.run(words).await.0, Exit::Usage, "{words}");
    }
    let job = Shell::of_job(&world, &world.job(1, &json!({})));
    assert_eq!(job.run(&format!("show {which}")).await.0, Exit::Usage);
    let nobody = Shell(BTreeMap::from([("GATEWAY_JOB_TOKEN".to_owned(), "a.b.c".to_owned())]));
    let (exit, _, err) = nobody.run("show --agent prod").await;
    assert!(exit == Exit::Failed && err.contains("GATEWAY_URL"), "{err}");
    world.gateway.stop().await;
}
