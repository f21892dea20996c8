use http::Request;

use super::*;

#[track_caller]
fn check(method: &str, fields: &[(&'static str, &'static str)], expected: Option<ActivityKind>) {
    let mut request = Request::builder().method(method).uri("/");
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let (parts, ()) = request.body(()).unwrap().into_parts();
    assert_eq!(of_request(&parts), expected, "{method} {fields:?}");
}

const NAVIGATES: [(&str, &str); 2] = [("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];

fn navigation(more: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
    [&NAVIGATES[..], more].concat()
}

#[test]
fn visits_of_a_person_count() {
    check("GET", &navigation(&[("sec-fetch-site", "none"), ("sec-fetch-user", "?1")]), Some(ActivityKind::Visit));
    check(
        "GET",
        &navigation(&[("sec-fetch-site", "same-origin"), ("sec-fetch-user", "?1")]),
        Some(ActivityKind::Visit),
    );
    check("GET", &navigation(&[("sec-fetch-site", "same-site")]), Some(ActivityKind::Visit));
    check("GET", &[("accept", "text/html,*/*;q=0.8")], Some(ActivityKind::Visit));
}

#[test]
fn page_that_loads_itself_again_and_prefetches_do_not_count() {
    check("GET", &navigation(&[("sec-fetch-site", "same-origin")]), None);
    check("GET", &navigation(&[("sec-fetch-site", "none"), ("sec-purpose", "prefetch")]), None);
}

#[test]
fn reads_of_pages_do_not_count() {
    check("GET", &[], None);
    check("GET", &[("sec-fetch-mode", "cors"), ("sec-fetch-dest", "empty")], None);
    check("GET", &[("accept", "text/event-stream"), ("sec-fetch-dest", "empty"), ("sec-fetch-mode", "cors")], None);
    check("GET", &[("sec-fetch-mode", "no-cors"), ("sec-fetch-dest", "image")], None);
    check("GET", &[("upgrade", "websocket"), ("connection", "upgrade"), ("accept", "text/html")], None);
    check("HEAD", &navigation(&[("sec-fetch-site", "none")]), None);
    check("OPTIONS", &[], None);
    check("CONNECT", &[], None);
}

#[test]
fn changing_requests_count_and_reports_of_the_browser_do_not() {
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        check(method, &[], Some(ActivityKind::Change));
        check(method, &[("sec-fetch-mode", "cors"), ("sec-fetch-dest", "empty")], Some(ActivityKind::Change));
    }
    check("POST", &[("sec-fetch-dest", "report"), ("sec-fetch-mode", "no-cors")], None);
}

fn at(seconds: i64) -> UnixSeconds {
    UnixSeconds::new(seconds)
}

#[test]
fn each_workspace_is_written_at_most_once_in_the_interval_and_the_newest_use_is() {
    let (activities, app, user) = (Activities::default(), "app".parse().unwrap(), "ann".parse().unwrap());
    let interval = Duration::from_mins(1);
    let mut writes = Vec::new();
    let activity = activities.of(&app, &user);
    // A person types for five minutes.
    for now in 1_000..1_300 {
        for _ in 0..10 {
            activity.of.note(ActivityKind::Terminal, Some(&user), at(now));
        }
        writes.extend(activities.due(at(now), interval).into_iter().map(|seen| seen.activity.at.get()));
    }
    assert_eq!(writes, [1_000, 1_060, 1_120, 1_180, 1_240]);
    let rest = activities.due(at(1_300), interval);
    assert_eq!(rest[0].activity.at, at(1_299), "the last key is not lost");
    assert_eq!(rest[0].activity.user, Some(user.clone()));
    drop(activity);
    assert_eq!(activities.due(at(1_400), interval), []);
    assert!(activities.0.lock().is_empty(), "no user has it open");
}

#[test]
fn use_that_could_not_be_written_is_written_later() {
    let (activities, app) = (Activities::default(), "app".parse().unwrap());
    activities.entry(&app).note(ActivityKind::Busy, None, at(5_000));
    let due = activities.due(at(5_000), Duration::from_mins(1));
    assert_eq!(activities.due(at(5_001), Duration::from_mins(1)), []);
    activities.put_back(&due);
    assert_eq!(activities.due(at(5_002), Duration::from_mins(1)), due);
}
