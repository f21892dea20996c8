use std::collections::BTreeMap;

use super::*;

fn judge(key: &str, samples: &[(&str, &str, &str, f64)]) -> Vec<FigureLine> {
    let mut section = Section::default();
    for (subject, load, value, number) in samples {
        section.add(0, subject, load, BTreeMap::from([((*value).to_owned(), *number)]));
    }
    (ROWS.iter().find(|row| row.key == key).unwrap().judge)(&section)
}

#[test]
fn ratio_below_target_is_missed_and_unmeasured_part_is_named() {
    let lines = judge("requests", &[("gateway", "keep128", "per_s", 90.0), ("nginx-nginx", "keep128", "per_s", 100.0)]);
    assert_eq!(lines[0].measured, "0.90");
    assert_eq!(lines[0].met, Some(false));
    assert_eq!(lines[1].met, None);
}

#[test]
fn fastest_tunnel_by_host_is_the_one_to_beat() {
    let samples = [
        ("gateway", "keep128", "per_s", 160.0),
        ("frp-http", "keep128", "per_s", 10.0),
        ("nginx+rathole", "keep128", "per_s", 100.0),
        ("rathole", "keep128", "per_s", 500.0),
    ];
    let lines = judge("by-host", &samples);
    assert!(lines[0].what.ends_with("gateway / nginx+rathole"), "{:?}", lines[0]);
    assert_eq!((lines[0].measured.as_str(), lines[0].met), ("1.60", Some(true)));
    assert!(lines[1].what.contains("no such tunnel"));
}

#[test]
fn added_latency_is_compared_in_the_same_round() {
    let at = |subject, value| (subject, "one128", "p50_us", value);
    let lines = judge("latency", &[at("direct", 60.0), at("nginx-nginx", 90.0), at("gateway", 95.0)]);
    assert_eq!(lines[0].measured, "35.0; nginx-nginx 30.0; difference 5.00");
    assert_eq!(lines[0].met, Some(false));
}

#[test]
fn quiet_channel_is_judged_with_the_queue_of_the_link_and_shown_without() {
    let samples = [
        ("gateway", "noisy-neighbour", "added_p99_ms", 14.0),
        ("gateway", "noisy-neighbour", "link_queue_ms", 10.0),
        ("gateway", "noisy-neighbour-short", "added_p99_ms", 9.0),
        ("gateway", "noisy-neighbour", "fifo_added_p99_ms", 900.0),
    ];
    let lines = judge("quiet-channel", &[&samples[..1], &samples[2..]].concat());
    assert_eq!(lines[0].measured, "14.0", "figures of a run that did not tell the queue are shown as they are");
    let lines = judge("quiet-channel", &samples);
    assert!(lines[0].measured.starts_with("14.0; up to 10.0 of it"), "{:?}", lines[0]);
    assert_eq!((lines[0].met, lines[0].judged), (Some(false), true), "nothing is taken off");
    assert_eq!((lines[1].measured.as_str(), lines[1].judged), ("9.00", false));
}

#[test]
fn lossy_link_has_a_target_of_its_own() {
    let samples = [
        ("gateway", "100mbit", "mb_s", 8.5),
        ("direct", "100mbit", "mb_s", 10.0),
        ("gateway", "100mbit, 1 % loss", "mb_s", 8.5),
        ("direct", "100mbit, 1 % loss", "mb_s", 10.0),
    ];
    assert_eq!(judge("long-link", &samples).iter().map(|line| line.met).collect::<Vec<_>>(), [Some(false), Some(true)]);
}

#[test]
fn one_byte_lost_by_either_kind_of_link_is_a_miss() {
    let samples = [("gateway", "link-cut", "bytes_wrong", 0.0), ("gateway-tls", "link-cut", "bytes_wrong", 1.0)];
    assert_eq!(judge("cuts", &samples)[0].met, Some(false));
    assert_eq!(judge("cuts", &samples[..1])[0].met, Some(true));
}

#[test]
fn changed_latency_beside_stalled_readers_is_a_miss_in_both_directions() {
    for (change, met) in [(0.05, true), (0.2, false), (-0.2, false)] {
        let lines = judge("stalled-readers", &[("gateway", "slow-reader", "p99_change", change)]);
        assert_eq!(lines[1].met, Some(met), "{change}");
    }
}

#[test]
fn keys_are_different() {
    let mut keys: Vec<_> = ROWS.iter().map(|row| row.key).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), ROWS.len());
}
