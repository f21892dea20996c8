//! The operator's listener: by which names it answers, and whether a scraper can read its numbers.

use std::collections::{BTreeMap, BTreeSet};

use e2e::raw::{Message, Raw};
use gateway_store::wall_clock;

use super::support::{World, app, ok};

const OPEN_METRICS: &str = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";

async fn operator(world: &World, target: &str, host: &str, fields: &str) -> Message {
    let mut operator = Raw::connect(world.gateway.addresses.admin.unwrap()).await;
    operator.send(format!("GET {target} HTTP/1.1\r\nhost: {host}\r\n{fields}connection: close\r\n\r\n")).await;
    operator.message().await.unwrap()
}

/// One family of metrics.
#[derive(Debug, Default)]
struct Family {
    help: usize,
    kind: Option<String>,
    samples: Vec<String>,
}

/// Reads a text by its rules: metadata once and before the samples, families in one piece, no series twice.
fn families(text: &str) -> BTreeMap<String, Family> {
    let mut families = BTreeMap::<String, Family>::new();
    let (mut last, mut series) = (String::new(), BTreeSet::new());
    for line in text.lines().filter(|line| *line != "# EOF") {
        let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if let Some(metadata) = line.strip_prefix("# ") {
            let mut words = metadata.splitn(3, ' ');
            let (word, name) = (words.next().unwrap(), words.next().unwrap().to_owned());
            let said = words.next().expect(line);
            assert!(is_name(&name) && !said.is_empty(), "{line}");
            assert!(name == last || !families.contains_key(&name), "in two pieces: {line}");
            let family = families.entry(name.clone()).or_default();
            assert!(family.samples.is_empty(), "metadata behind samples: {line}");
            match word {
                "HELP" => family.help += 1,
                "TYPE" => assert!(family.kind.replace(said.to_owned()).is_none(), "{line}"),
                "UNIT" => assert!(name.ends_with(said), "{line}"),
                other => panic!("{other}: {line}"),
            }
            last = name;
            continue;
        }
        let (labelled, value) = line.rsplit_once(' ').expect(line);
        value.parse::<f64>().expect(line);
        assert!(series.insert(labelled.to_owned()), "twice: {line}");
        let sample = labelled.split('{').next().unwrap();
        assert!(is_name(sample), "{line}");
        let family = families.get_mut(&last).expect(line);
        let rest = sample.strip_prefix(last.as_str()).expect(line);
        assert!(["", "_total", "_bucket", "_sum", "_count"].contains(&rest), "{line}");
        family.samples.push(rest.to_owned());
    }
    for (name, family) in &families {
        assert_eq!(family.help, 1, "{name}");
        assert!(family.kind.is_some(), "{name}");
    }
    families
}

#[tokio::test]
async fn numbers_keep_the_rules_of_the_text_that_is_asked_for() {
    let world = World::start().await;
    let app = app(|_, _, _| ok("in")).await;
    world.ask(app.port, "GET /", "").await;
    world.ask(1, "GET /", "").await;
    for accept in ["", "accept: */*\r\n", "accept: text/plain\r\n"] {
        let answer = operator(&world, "/metrics", "127.0.0.1", accept).await;
        assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"), "{accept}");
        let text = answer.text();
        assert!(!text.contains("# EOF") && !text.contains("# UNIT"), "{text}");
        for (name, family) in families(&text) {
            let is_counter = family.kind.as_deref() == Some("counter");
            assert_eq!(name.ends_with("_total"), is_counter, "{name}");
            let is_histogram = family.kind.as_deref() == Some("histogram");
            assert!(is_histogram || family.samples.iter().all(String::is_empty), "{name}: {family:?}");
        }
    }
    let answer = operator(&world, "/metrics", "127.0.0.1", &format!("accept: {OPEN_METRICS}\r\n")).await;
    let expected = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(answer.header("content-type"), Some(expected));
    assert!(answer.text().ends_with("# EOF\n"));
    for (name, family) in families(&answer.text()) {
        assert!(!name.ends_with("_total"), "{name}");
        let is_counter = family.kind.as_deref() == Some("counter");
        assert!(!is_counter || family.samples.iter().all(|suffix| suffix == "_total"), "{name}: {family:?}");
    }
}

#[tokio::test]
async fn numbers_are_there_before_anything_happens() {
    let world = World::start().await;
    let text = operator(&world, "/metrics", "127.0.0.1", "").await.text();
    for series in [
        "gateway_limits_reached_total{limit=\"limits.connections_per_address\"} 0",
        "gateway_limits_reached_total{limit=\"limits.agent_connections_per_address\"} 0",
        "gateway_failures_total{code=\"port_closed\",reason=\"port_closed\",side=\"app\"} 0",
        "gateway_failures_total{code=\"port_closed\",reason=\"app_closed\",side=\"app\"} 0",
        "gateway_failures_total{code=\"overloaded\",reason=\"limits.requests_per_user\",side=\"limit\"} 0",
        "gateway_request_phase_seconds_count{phase=\"queue\"} 0",
        "gateway_dependency_seconds_count{of=\"provider\"} 0",
        "gateway_spans_total{end=\"lost\"} 0",
        "gateway_responses_total{class=\"5xx\"} 0",
        "gateway_tcp_ended_total{end=\"lost\"} 0",
        "gateway_sign_ins_total{how=\"oidc\"} 0",
        "gateway_sign_ins_failed_total{reason=\"not_admitted\"} 0",
        "gateway_agents_connected_total{how=\"resumed\"} 0",
        "gateway_agents_refused_total 0",
        "gateway_websockets 0",
        "gateway_websockets_opened_total 0",
        "gateway_audit_lost_total 0",
        "gateway_log_lost_lines_total 0",
        "gateway_request_duration_seconds_count{by=\"app\"} 0",
        "gateway_ci_runs_ended_total{end=\"failed\"} 0",
        "gateway_cluster_reports_total{end=\"stored\"} 0",
    ] {
        assert!(text.lines().any(|line| line == series), "{series}: {text}");
    }
    let is_there = |begin: &str| text.lines().any(|line| line.starts_with(begin) && !line.ends_with(" 0"));
    for begin in [
        "gateway_build_info{version=\"",
        "process_cpu_seconds_total ",
        "process_resident_memory_bytes ",
        "process_open_fds ",
        "process_max_fds ",
        "process_start_time_seconds ",
    ] {
        assert!(is_there(begin), "{begin}: {text}");
    }
    let app = app(|_, _, _| ok("in")).await;
    world.ask(app.port, "GET /", "").await;
    world.ask(1, "GET /", "").await;
    let text = operator(&world, "/metrics", "127.0.0.1", "").await.text();
    for series in [
        "gateway_request_duration_seconds_count{by=\"app\"} 1",
        "gateway_request_duration_seconds_count{by=\"gateway\"} 1",
        "gateway_failures_total{code=\"port_closed\",reason=\"port_closed\",side=\"app\"} 1",
        "gateway_request_phase_seconds_count{phase=\"queue\"} 1",
        "gateway_request_phase_seconds_count{phase=\"tunnel\"} 1",
        "gateway_request_phase_seconds_count{phase=\"app\"} 1",
    ] {
        assert!(text.lines().any(|line| line == series), "{series}: {text}");
    }
    let bytes = |direction: &str| {
        let series = format!("gateway_tunnel_bytes_total{{direction=\"{direction}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&series)?.parse::<u64>().ok()).expect("the series")
    };
    assert!(bytes("to_agents") > 0 && bytes("from_agents") > 0);
    // It is counted behind what let it in.
    let counted = async {
        let series = "gateway_agents_connected_total{how=\"new\"} 1";
        while !operator(&world, "/metrics", "127.0.0.1", "").await.text().lines().any(|line| line == series) {}
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), counted).await.unwrap();
}

/// A page that has its own name resolve to this listener's address sends that name.
#[tokio::test]
async fn operators_listener_answers_by_no_name_of_a_stranger() {
    let world =
        World::configured(|config| config.listen.admin_hosts = vec!["gateway-admin.internal".to_owned()], Vec::new())
            .await;
    for target in ["/debug/sessions", "/metrics", "/readyz", "/healthz", "/nothing", "http://127.0.0.1/metrics"] {
        for host in ["evil.example", "evil.example:8082", "127.0.0.1.evil.example", "localhost.evil.example"] {
            let answer = operator(&world, target, host, "").await;
            assert_eq!(answer.status(), 421, "{target} {host}");
            assert!(!answer.text().contains("one"), "{}", answer.text());
        }
    }
    for host in
        ["127.0.0.1", "127.0.0.1:8082", "[::1]:8082", "localhost", "10.0.0.7:8082", "gateway-admin.internal:8082"]
    {
        assert_eq!(operator(&world, "/debug/sessions", host, "").await.status(), 200, "{host}");
    }
}

/// Names of workspaces, users, ports and paths are no labels: what a thousand workspaces are asked adds no series.
#[tokio::test]
async fn number_of_series_does_not_grow_with_workspaces_and_their_users() {
    const WORKSPACES: usize = 1000;
    let world = World::start().await;
    let gateway = &world.gateway;
    let app = app(|_, _, _| ok("in")).await;
    for number in 0..WORKSPACES {
        let (name, owner) = (format!("w-{number}").parse().unwrap(), format!("user-{number}").parse().unwrap());
        gateway.store.create_agent_token(&name, &owner, wall_clock()).await.unwrap();
    }
    let mut client = world.client().await;
    let mut ask = async |workspace: &str, port: u16, target: &str| {
        let (host, token) = (gateway.authority(workspace, port), &gateway.user_token);
        client
            .send(format!(
                "GET {target} HTTP/1.1\r\nhost: {host}\r\ngateway-authorization: Bearer {token}\r\nuser-agent: {workspace}\r\n\r\n"
            ))
            .await;
        client.message().await.expect("an answer").status()
    };
    let series = async || -> BTreeSet<String> { gateway.metrics().await.into_keys().collect() };
    // One of each kind first.
    assert_eq!(ask("one", app.port, "/").await, 200);
    assert_eq!(ask("w-0", 3000, "/").await, 404, "another user's");
    assert_eq!(ask("one", 1, "/").await, 502);
    let before = series().await;
    for number in 0..WORKSPACES {
        let port = u16::try_from(1025 + number).unwrap();
        assert_eq!(ask(&format!("w-{number}"), port, &format!("/{number}?{number}")).await, 404);
        assert_eq!(ask("one", app.port, &format!("/{number}")).await, 200);
    }
    let after = series().await;
    assert!(before.len() > 300, "{}", before.len());
    assert_eq!(after.difference(&before).collect::<Vec<_>>(), Vec::<&String>::new());
}
