//! Traces of requests: whose a browser's trace is, what an app continues, and what a collector gets.

use std::time::Duration;

use e2e::PATIENCE;
use e2e::raw::Message;
use gateway_config::Traces;
use serde_json::Value;

use super::support::{App, Reply, World, app, ok};

/// A sampled trace of a client.
const OFFERED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// A collector, and a gateway that sends it the traces of one request in so many.
async fn world(one_in: u32, slow: Duration) -> (World, App) {
    let collector = app(|_, _, _| {
        Reply::Keep("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}".to_owned())
    })
    .await;
    let url = format!("http://127.0.0.1:{}/v1/traces", collector.port).parse().unwrap();
    let traces = Traces { collector: Some(url), ca_file: None, one_in, slow };
    let world = World::configured(|config| config.traces = traces, Vec::new()).await;
    (world, collector)
}

/// Returns the spans that the collector has by now.
fn spans(collector: &App) -> Vec<Value> {
    let bodies = collector.seen.requests();
    let read = |request: &Message| serde_json::from_slice::<Value>(&request.body).expect("JSON");
    let spans = |body: Value| body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone();
    bodies.iter().map(read).flat_map(spans).collect()
}

/// Waits for the span of a request with this attribute, and returns all that came by then.
async fn until_span(collector: &App, key: &str, value: &Value) -> Vec<Value> {
    let has = |span: &Value| {
        let attributes = span["attributes"].as_array().unwrap();
        attributes.iter().any(|attribute| attribute["key"] == key && attribute["value"] == *value)
    };
    let found = async {
        loop {
            let spans = spans(collector);
            if spans.iter().any(has) {
                return spans;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, found).await.expect("the span comes")
}

/// Returns the last request that an app got.
fn last(app: &App) -> Message {
    app.seen.requests().pop().expect("a request")
}

fn port(number: u16) -> Value {
    serde_json::json!({ "intValue": number.to_string() })
}

fn span<'a>(spans: &'a [Value], name: &str) -> &'a Value {
    let mut found = spans.iter().filter(|span| span["name"] == name);
    let span = found.next().unwrap_or_else(|| panic!("no {name}"));
    assert!(found.next().is_none(), "several {name}");
    span
}

#[tokio::test]
async fn trace_of_a_signed_in_browser_goes_on_through_gateway_and_app() {
    let (world, collector) = world(0, Duration::from_secs(60)).await;
    let app = app(|_, _, _| ok("in")).await;
    let fields = format!("traceparent: {OFFERED}\r\ntracestate: vendor=1\r\n");
    assert_eq!(world.ask(app.port, "GET /secret?secret=1", &fields).await.status(), 200);
    let spans = until_span(&collector, "gateway.port", &port(app.port)).await;
    assert_eq!(spans.len(), 4, "{spans:?}");
    assert!(spans.iter().all(|span| span["traceId"] == "4bf92f3577b34da6a3ce929d0e0e4736"), "{spans:?}");
    let [request, queue, tunnel, of_app] = ["request", "queue", "tunnel", "app"].map(|name| span(&spans, name));
    assert_eq!(request["parentSpanId"], "00f067aa0ba902b7");
    assert_eq!(queue["parentSpanId"], request["spanId"]);
    assert_eq!(tunnel["parentSpanId"], request["spanId"]);
    assert_eq!(of_app["parentSpanId"], tunnel["spanId"]);
    let seen = app.seen.requests();
    let continued = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{}-01", of_app["spanId"].as_str().unwrap());
    assert_eq!(seen[0].header("traceparent"), Some(continued.as_str()));
    assert_eq!(seen[0].header("tracestate"), Some("vendor=1"));
    let time = |span: &Value, key: &str| span[key].as_str().unwrap().parse::<u128>().unwrap();
    let (began, ended) = ("startTimeUnixNano", "endTimeUnixNano");
    assert!(time(request, began) == time(queue, began) && time(queue, ended) == time(tunnel, began));
    assert!(time(tunnel, ended) == time(request, ended));
    assert!(time(tunnel, began) <= time(of_app, began) && time(of_app, ended) <= time(tunnel, ended));
    assert!(!format!("{spans:?}").contains("secret"), "nothing of the request: {spans:?}");
    let sent = "gateway_spans_total{end=\"sent\"}";
    let counted = async { while world.gateway.metrics().await[sent] < 4.0 {} };
    tokio::time::timeout(PATIENCE, counted).await.expect("spans are counted");
}

#[tokio::test]
async fn sampled_flag_of_a_request_without_a_user_is_not_obeyed() {
    let (world, collector) = world(0, Duration::from_secs(60)).await;
    let app = app(|_, _, _| ok("in")).await;
    world.gateway.publish("one", app.port).await;
    let host = world.authority(app.port);
    let mut client = world.client().await;
    client.send(format!("GET / HTTP/1.1\r\nhost: {host}\r\ntraceparent: {OFFERED}\r\n\r\n")).await;
    assert_eq!(client.message().await.unwrap().status(), 200);
    // The field is the app's to judge.
    assert_eq!(last(&app).header("traceparent"), Some(OFFERED));
    // What a signed-in user's next request leaves is all that there is.
    let closed = world.ask(1, "GET /", "").await;
    let failure = until_span(&collector, "gateway.port", &port(1)).await;
    assert_eq!(failure.iter().filter(|span| span["name"] == "request").count(), 1, "{failure:?}");
    assert_eq!(failure[0]["traceId"].as_str(), closed.header("gateway-trace"));
}

#[tokio::test]
async fn trace_of_a_request_without_a_user_begins_anew_with_a_link() {
    let (world, collector) = world(1, Duration::from_secs(60)).await;
    let app = app(|_, _, _| ok("in")).await;
    world.gateway.publish("one", app.port).await;
    let host = world.authority(app.port);
    let mut client = world.client().await;
    let fields = format!("traceparent: {OFFERED}\r\ntracestate: vendor=1\r\n");
    client.send(format!("GET / HTTP/1.1\r\nhost: {host}\r\n{fields}\r\n")).await;
    assert_eq!(client.message().await.unwrap().status(), 200);
    let get = serde_json::json!({ "stringValue": "GET" });
    let all = until_span(&collector, "http.request.method", &get).await;
    let request = all.iter().find(|span| span["links"].is_array()).expect("a span with a link");
    assert_ne!(request["traceId"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(request["parentSpanId"], Value::Null);
    assert_eq!(request["links"][0]["traceId"], "4bf92f3577b34da6a3ce929d0e0e4736");
    let spans: Vec<Value> = all.iter().filter(|span| span["traceId"] == request["traceId"]).cloned().collect();
    let continued =
        ["traceId", "spanId"].map(|key| span(&spans, "app")[key].as_str().expect("an id").to_owned()).join("-");
    assert_eq!(last(&app).header("traceparent"), Some(format!("00-{continued}-01").as_str()));
    assert_eq!(last(&app).header("tracestate"), None, "it is of the other trace");
}

#[tokio::test]
async fn failed_and_slow_requests_leave_spans_always() {
    let (world, collector) = world(0, Duration::ZERO).await;
    let app = app(|_, _, _| ok("in")).await;
    // Whatever its client says: nothing was to be continued.
    let unsampled = OFFERED.replace("-01", "-00");
    assert_eq!(world.ask(app.port, "GET /", &format!("traceparent: {unsampled}\r\n")).await.status(), 200);
    assert_eq!(app.seen.requests()[0].header("traceparent"), Some(unsampled.as_str()));
    let slow = until_span(&collector, "gateway.port", &port(app.port)).await;
    assert_eq!(span(&slow, "request")["status"], Value::Null);
    let closed = world.ask(1, "GET /", "").await;
    let spans = until_span(&collector, "gateway.port", &port(1)).await;
    let is_of_failure = |span: &&Value| span["name"] == "request" && span["status"]["code"] == 2;
    let failed = spans.iter().find(is_of_failure).expect("a failed span");
    assert_eq!(failed["traceId"].as_str(), closed.header("gateway-trace"));
    let attributes = failed["attributes"].to_string();
    for word in ["port_closed", "app", "one", "502", "GET"] {
        assert!(attributes.contains(&format!("\"{word}\"")), "{word}: {attributes}");
    }
}

#[tokio::test]
async fn collector_that_is_away_holds_no_request_up() {
    let traces = Traces {
        collector: Some("http://127.0.0.1:9/v1/traces".parse().unwrap()),
        ca_file: None,
        one_in: 1,
        slow: Duration::ZERO,
    };
    let world = World::configured(|config| config.traces = traces, Vec::new()).await;
    let app = app(|_, _, _| ok("in")).await;
    for _ in 0..20 {
        assert_eq!(world.ask(app.port, "GET /", "").await.status(), 200);
    }
    let lost = "gateway_spans_total{end=\"lost\"}";
    let counted = async { while world.gateway.metrics().await[lost] < 4.0 {} };
    tokio::time::timeout(PATIENCE, counted).await.expect("lost spans are counted");
}

#[tokio::test]
async fn browser_of_the_owner_sees_where_the_time_went_and_no_other_user_does() {
    let world = World::start().await;
    let app = app(|_, _, _| {
        let head = "HTTP/1.1 200 OK\r\nserver-timing: db;dur=3\r\ncontent-length: 2\r\n\r\nin";
        Reply::Keep(head.to_owned())
    })
    .await;
    let fields = format!("traceparent: {OFFERED}\r\nsec-fetch-mode: cors\r\n");
    let answer = world.ask(app.port, "GET /", &fields).await;
    let timings: Vec<&str> =
        answer.headers.iter().filter(|(name, _)| name == "server-timing").map(|(_, value)| value.as_str()).collect();
    let [of_app, own] = timings[..] else { panic!("{timings:?}") };
    assert_eq!(of_app, "db;dur=3", "the app's own stays");
    let names: Vec<&str> = own.split(", ").filter_map(|part| part.split_once(";dur=")).map(|(name, _)| name).collect();
    assert_eq!(names, ["queue", "tunnel", "app"], "{own}");
    // Without a collector the field passes as it came.
    assert_eq!(app.seen.requests()[0].header("traceparent"), Some(OFFERED));
    let of_program = world.ask(app.port, "GET /", "").await;
    assert_eq!(of_program.header("server-timing"), Some("db;dur=3"), "a program does not read it");
    world.gateway.publish("one", app.port).await;
    let host = world.authority(app.port);
    let mut client = world.client().await;
    client.send(format!("GET / HTTP/1.1\r\nhost: {host}\r\nsec-fetch-mode: cors\r\n\r\n")).await;
    let answer = client.message().await.unwrap();
    assert_eq!((answer.status(), answer.header("server-timing")), (200, Some("db;dur=3")));
}
