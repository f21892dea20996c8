mod access;
mod lists;

use proptest::prelude::*;

use super::*;
use gateway_types::quota::{Quota, Quotas};

/// The least that turns workspaces on; cases add lines to the section, which begin on line 4.
const SMALL: &str = "\
workspaces:
  enabled: true
  tools_image: registry.example.com/tools:1
";

const FULL: &str = "\
workspaces:
  enabled: true
  network_policy:
    enabled: true
    egress:
    - allow: 0.0.0.0/0
      except: [10.0.0.0/8, 192.168.0.0/16]
    - allow: 2001:db8::/32
      except: ['2001:db8:1::/48']
  default_resources_per_container:
    requests: {cpu: 0.5, memory: 512Mi}
    limits: {cpu: 1, memory: 1Gi}
  max_resources_per_workspace:
    requests: {cpu: '4', memory: 8Gi}
    limits: {cpu: 8, memory: 16Gi}
  quota: 200
  quota_per_user: 3
  running_quota: 50
  running_quota_per_user: 2
  resource_quota: {cpu: 100, memory: 200Gi, storage: 2Ti}
  resource_quota_per_user: {cpu: 2500m, storage: 100Gi}
  max_age_hours_before_termination: 720
  use_kubernetes_user_namespaces: true
  default_runtime_class: kata.v2
  allow_privilege_escalation: true
  image_pull_policy: IfNotPresent
  editors:
  - {name: lab, command: 'lab --port $EDITOR_PORT'}
  - {name: code-server}
  image_pull_secrets:
  - {name: registry, namespace: ci}
  - {name: mirror, namespace: ops}
  annotations: {example.com/note: 'any text; $(here)'}
  labels: {example.com/team: Shop_1, tier: ''}
  max_active_hours_before_stop: 12
  max_stopped_hours_before_termination: 100
  idle_minutes: 30
  max_idle_minutes: 120
  namespace_prefix: dev-
  tools_image: registry.example.com/tools:1
  gateway_url: https://Agents.example.com:8443/
";

fn told(text: &str) -> Vec<String> {
    match parse(text.as_bytes()) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.iter().map(ToString::to_string).collect(),
    }
}

#[track_caller]
fn check(text: &str, expected: &[&str]) {
    assert_eq!(told(text), expected, "{text}");
}

/// Expects exactly these problems of the small file with more lines in its section.
#[track_caller]
fn check_with(lines: &str, expected: &[&str]) {
    check(&format!("{SMALL}{lines}"), expected);
}

#[test]
fn file_that_says_nothing_leaves_workspaces_off() {
    for text in ["", "# nothing\n", "---\n", "workspaces:\n"] {
        assert_eq!(parse(text.as_bytes()), Ok(ClusterConfig::default()), "{text}");
    }
    assert!(!ClusterConfig::default().enabled);
}

#[test]
fn small_file_gets_the_defaults() {
    let config = parse(SMALL.as_bytes()).unwrap();
    let tools_image = "registry.example.com/tools:1".to_owned();
    assert_eq!(config, ClusterConfig { enabled: true, tools_image, ..ClusterConfig::default() });
    assert_eq!((config.max_active_hours, config.max_stopped_hours), (36, 744));
    let hours = |hours: u64| Duration::from_secs(hours * 3600);
    let limits = TimeLimits { active: hours(36), stopped: hours(744), age: hours(8760) };
    assert_eq!(config.time_limits(), limits);
    assert_eq!((config.quota, config.quota_per_user), (None, None));
    assert_eq!(config.network_policy.egress[0].allow, "0.0.0.0/0");
    let closed = ["10.0.0.0/8", "169.254.169.254/32", "172.16.0.0/12", "192.168.0.0/16"];
    assert_eq!(config.network_policy.egress[0].except, closed);
    assert_eq!(config.network_policy.egress.len(), 1, "nothing of IPv6");
}

#[test]
fn egress_of_ones_own_is_taken_as_it_is() {
    let egress = |lines: &str| parse(format!("{SMALL}{lines}").as_bytes()).unwrap().network_policy.egress;
    let open = egress("  network_policy: {egress: [{allow: 0.0.0.0/0}, {allow: '::/0'}]}\n");
    assert!(open.iter().all(|rule| rule.except.is_empty()), "nothing is closed that the file does not close");
    assert_eq!(egress("  network_policy: {enabled: true}\n"), NetworkPolicy::default().egress);
    // A version that is stored says it whole, so that a workspace keeps the policy that it was made with.
    let stored =
        "{\"network_policy\":{\"egress\":[{\"allow\":\"0.0.0.0/0\",\"except\":[\"10.0.0.0/8\"]}],\"enabled\":true}}";
    assert_eq!(ClusterConfig::from_json(stored).unwrap().network_policy.egress[0].except, ["10.0.0.0/8"]);
}

#[test]
fn totals_are_limits_of_what_workspaces_take_together() {
    let quotas = parse(FULL.as_bytes()).unwrap().quotas();
    let cluster = Quota {
        workspaces: Some(200),
        running: Some(50),
        cpu_millis: Some(100_000),
        memory_bytes: Some(200 << 30),
        storage_bytes: Some(2 << 40),
    };
    let user = Quota {
        workspaces: Some(3),
        running: Some(2),
        cpu_millis: Some(2500),
        memory_bytes: None,
        storage_bytes: Some(100 << 30),
    };
    assert_eq!(quotas, Quotas { cluster, user });
    assert_eq!(parse(FULL.as_bytes()).unwrap().time_limits().age, Duration::from_secs(720 * 3600));
    assert_eq!(ClusterConfig::default().quotas(), Quotas::default());
    let stored = ClusterConfig::default().to_json();
    assert!(!stored.contains("running_quota") && !stored.contains("resource_quota"), "an earlier version reads it");
    let counted = "needs default_resources_per_container: a container without requests would not be counted";
    check_with(
        "  resource_quota: {memory: 1Gi}\n  resource_quota_per_user: {storage: 1Gi}\n",
        &[&format!("line 4, workspaces.resource_quota: {counted}")],
    );
    check_with(
        "  resource_quota: {cpu: many}\n",
        &[
            "line 4, workspaces.resource_quota.cpu: is not a Kubernetes quantity such as 500m, 2, 512Mi or 1.5Gi; it is \"many\"",
        ],
    );
}

#[test]
fn full_file_is_read_as_it_says() {
    let amounts = |cpu: &str, memory: &str| Amounts { cpu: cpu.to_owned(), memory: memory.to_owned() };
    let secret = |name: &str, namespace: &str| SecretRef { name: name.to_owned(), namespace: namespace.to_owned() };
    let text = |text: &str| text.to_owned();
    assert_eq!(
        parse(FULL.as_bytes()).unwrap(),
        ClusterConfig {
            enabled: true,
            namespace_prefix: text("dev-"),
            shared_namespace: None,
            network_policy: NetworkPolicy {
                enabled: true,
                egress: vec![
                    Egress { allow: text("0.0.0.0/0"), except: vec![text("10.0.0.0/8"), text("192.168.0.0/16")] },
                    Egress { allow: text("2001:db8::/32"), except: vec![text("2001:db8:1::/48")] },
                ],
            },
            default_resources: Some(Resources { requests: amounts("0.5", "512Mi"), limits: amounts("1", "1Gi") }),
            max_resources: Some(Resources { requests: amounts("4", "8Gi"), limits: amounts("8", "16Gi") }),
            quota: Some(200),
            quota_per_user: Some(3),
            running_quota: Some(50),
            running_quota_per_user: Some(2),
            resource_quota: Some(ResourceTotals {
                cpu: Some(text("100")),
                memory: Some(text("200Gi")),
                storage: Some(text("2Ti")),
            }),
            resource_quota_per_user: Some(ResourceTotals {
                cpu: Some(text("2500m")),
                memory: None,
                storage: Some(text("100Gi")),
            }),
            max_age_hours: Some(720),
            user_namespaces: true,
            runtime_class: Some(text("kata.v2")),
            allow_privilege_escalation: true,
            image_pull_policy: Some(PullPolicy::IfNotPresent),
            editors: vec![
                Editor { name: text("lab"), command: Some(text("lab --port $EDITOR_PORT")) },
                Editor { name: text("code-server"), command: None },
            ],
            image_pull_secrets: vec![secret("registry", "ci"), secret("mirror", "ops")],
            annotations: BTreeMap::from([(text("example.com/note"), text("any text; $(here)"))]),
            labels: BTreeMap::from([(text("example.com/team"), text("Shop_1")), (text("tier"), String::new())]),
            max_active_hours: 12,
            max_stopped_hours: 100,
            idle_minutes: 30,
            max_idle_minutes: 120,
            tools_image: text("registry.example.com/tools:1"),
            gateway_url: Some(text("https://agents.example.com:8443")),
            ci_access: CiAccess::default(),
        }
    );
}

#[test]
fn editors_have_names_of_their_own_and_commands() {
    let lines = "  editors:\n  - {name: lab}\n  - {name: none, command: x}\n  - {name: A, command: x}\n  - {name: b, command: ' '}\n  - \
                 {name: c, command: x}\n  - {name: c, command: y}\n";
    check_with(
        lines,
        &[
            "line 5, workspaces.editors[0].name: needs a command: only code-server is in the tools image",
            "line 6, workspaces.editors[1].name: must be a-z, 0-9 and dashes inside, and not none; it is \"none\"",
            "line 7, workspaces.editors[2].name: must be a-z, 0-9 and dashes inside, and not none; it is \"A\"",
            "line 8, workspaces.editors[3].command: must be a line for the shell, of at most 4096 bytes",
            "line 10, workspaces.editors[5].name: is the name of another editor, on line 9",
        ],
    );
}

#[test]
fn unknown_keys_are_refused_at_each_level() {
    let section = "enabled, namespace_prefix, shared_namespace, quota, quota_per_user, running_quota, running_quota_per_user, \
                   use_kubernetes_user_namespaces, default_runtime_class, image_pull_policy, allow_privilege_escalation, \
                   max_active_hours_before_stop, max_stopped_hours_before_termination, max_age_hours_before_termination, \
                   idle_minutes, max_idle_minutes, \
                   tools_image, gateway_url, network_policy, default_resources_per_container, max_resources_per_workspace, \
                   resource_quota, resource_quota_per_user, editors, image_pull_secrets, annotations, labels";
    check_with(
        "resource_management: {enabled: true}\n",
        &["line 4, resource_management: unknown key; known here: workspaces, ci_access"],
    );
    check_with("  dns_zone: x\n", &[&format!("line 4, workspaces.dns_zone: unknown key; known here: {section}")]);
    check_with(
        "  network_policy: {ingress: []}\n",
        &["line 4, workspaces.network_policy.ingress: unknown key; known here: enabled, egress"],
    );
    check_with(
        "  network_policy: {egress: [{allow: 1.0.0.0/8, deny: []}]}\n",
        &["line 4, workspaces.network_policy.egress[0].deny: unknown key; known here: allow, except"],
    );
    check_with(
        "  image_pull_secrets: [{name: a, namespace: b, kind: c}]\n",
        &["line 4, workspaces.image_pull_secrets[0].kind: unknown key; known here: name, namespace"],
    );
    check("workspaces: on\n", &["line 1, workspaces: must be a map, not text"]);
    check("[]\n", &["line 1: must be a map, not a list"]);
    check_with("  quota: 1\n  quota: 2\n", &["line 5, workspaces.quota: is there twice; the first is on line 4"]);
}

#[test]
fn whether_workspaces_are_on_has_to_be_said() {
    check("workspaces: {}\n", &["line 1, workspaces.enabled: is missing"]);
    check("workspaces: {enabled: yes}\n", &["line 1, workspaces.enabled: must be true or false, not text"]);
    check("workspaces: {enabled: false}\n", &[]);
    check(
        "workspaces:\n  enabled: true\n",
        &["line 2, workspaces.tools_image: is missing: the image that carries the workspace agent and the editor"],
    );
}

#[test]
fn numbers_have_ranges() {
    for key in ["quota", "quota_per_user"] {
        let path = format!("line 4, workspaces.{key}: must be a whole number from -1 to 4294967295");
        for (bad, why) in [
            ("-2", ", and is -2"),
            ("1.5", ", and is 1.5"),
            ("4294967296", ", and is 4294967296"),
            ("'5'", ", not text"),
        ] {
            check_with(&format!("  {key}: {bad}\n"), &[&format!("{path}{why}")]);
        }
    }
    let quotas = parse(format!("{SMALL}  quota: -1\n  quota_per_user: 0\n").as_bytes()).unwrap();
    assert_eq!((quotas.quota, quotas.quota_per_user), (None, Some(0)));
    for key in ["max_active_hours_before_stop", "max_stopped_hours_before_termination"] {
        let path = format!("line 4, workspaces.{key}: must be a whole number from 1 to 8760");
        for bad in ["0", "8761", "-1"] {
            check_with(&format!("  {key}: {bad}\n"), &[&format!("{path}, and is {bad}")]);
        }
    }
}

#[test]
fn hours_together_are_at_most_a_year() {
    let message = "max_active_hours_before_stop and max_stopped_hours_before_termination are";
    check_with(
        "  max_active_hours_before_stop: 8017\n",
        &[&format!(
            "line 4, workspaces.max_active_hours_before_stop: {message} 8761 hours together, and must not be more \
             than 8760"
        )],
    );
    check_with(
        "  max_stopped_hours_before_termination: 8760\n  max_active_hours_before_stop: 1\n",
        &[&format!(
            "line 4, workspaces.max_stopped_hours_before_termination: {message} 8761 hours together, and must not be \
             more than 8760"
        )],
    );
    check_with("  max_active_hours_before_stop: 8016\n", &[]);
}

#[test]
fn privileges_are_gained_only_where_something_contains_them() {
    check_with(
        "  allow_privilege_escalation: true\n",
        &["line 4, workspaces.allow_privilege_escalation: needs use_kubernetes_user_namespaces or a \
             default_runtime_class that \
           contains it"],
    );
    check_with("  allow_privilege_escalation: true\n  use_kubernetes_user_namespaces: true\n", &[]);
    check_with(
        "  image_pull_policy: always\n",
        &["line 4, workspaces.image_pull_policy: must be Always, IfNotPresent or Never, not \"always\""],
    );
    check_with("  allow_privilege_escalation: true\n  default_runtime_class: kata\n", &[]);
    check_with(
        "  default_runtime_class: Kata\n",
        &["line 4, workspaces.default_runtime_class: must be the name of a runtime class: DNS labels with dots \
             between them, at \
           most 253 characters; it is \"Kata\""],
    );
    check_with("  default_runtime_class: ''\n", &[]);
}

#[test]
fn shared_namespace_excludes_what_needs_namespaces_of_one_s_own() {
    let namespace = "must be the name of a namespace, a DNS label, and not one of Kubernetes' own; it is";
    for bad in ["Shared", "a.b", "kube-system", &"a".repeat(64)] {
        let shown = if bad.len() > 60 { format!("{}…", "a".repeat(60)) } else { bad.to_owned() };
        check_with(
            &format!("  shared_namespace: {bad}\n"),
            &[&format!("line 4, workspaces.shared_namespace: {namespace} {shown:?}")],
        );
    }
    check_with(
        "  shared_namespace: all\n  max_resources_per_workspace: {requests: {cpu: 1, memory: 1}, limits: {cpu: 1, \
         memory: 1}}\n",
        &["line 5, workspaces.max_resources_per_workspace: must be left out with shared_namespace: a quota would \
             count for all \
           workspaces together"],
    );
    check_with("  shared_namespace: all\n  max_resources_per_workspace: {}\n", &[]);
    check_with(
        "  shared_namespace: all\n  namespace_prefix: a-\n",
        &["line 5, workspaces.namespace_prefix: must be left out with shared_namespace: no namespace is made"],
    );
    let prefix = "must be at most 20 of a-z, 0-9 and dashes, not a dash first and not kube-; it is";
    for bad in ["-a", "A-", "a-long-prefix-of-many", "kube-", "a.b"] {
        check_with(
            &format!("  namespace_prefix: {bad}\n"),
            &[&format!("line 4, workspaces.namespace_prefix: {prefix} {bad:?}")],
        );
    }
}

#[test]
fn image_and_url_are_what_they_are_called() {
    check(
        "workspaces: {enabled: true, tools_image: 'a b'}\n",
        &["line 1, workspaces.tools_image: must be a reference to an image, such as \
             registry.example.com/team/tools:1.0; it is \
           \"a b\""],
    );
    for bad in ["agents.example.com", "ftp://a", "https://a/path", "https://user@a"] {
        let told = told(&format!("{SMALL}  gateway_url: '{bad}'\n"));
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(
            told[0].starts_with("line 4, workspaces.gateway_url: ") && told[0].ends_with(&format!("it is {bad:?}")),
            "{told:?}"
        );
    }
}

#[test]
fn prefix_leaves_room_for_each_name_that_a_workspace_has_on_kubernetes() {
    assert_eq!(settings::PREFIX_MAX + crate::frozen::KUBERNETES_NAME_BYTES_MAX, 63);
}

#[test]
fn limit_for_idle_workspaces_is_within_the_largest_and_off_without_a_word() {
    let rules = |lines: &str| parse(format!("{SMALL}{lines}").as_bytes()).unwrap().idle_rules();
    let minutes = |minutes: u64| Some(Duration::from_secs(minutes * 60));
    assert_eq!(rules(""), IdleRules::default());
    assert_eq!(rules("  idle_minutes: 0\n  max_idle_minutes: 60\n"), IdleRules { default: None, max: minutes(60) });
    assert_eq!(rules("  idle_minutes: 30\n"), IdleRules { default: minutes(30), max: None });
    check_with(
        "  max_idle_minutes: 20\n  idle_minutes: 30\n",
        &["line 5, workspaces.idle_minutes: must be at most max_idle_minutes, 20"],
    );
    assert!(!ClusterConfig::default().to_json().contains("idle"), "configurations of before stay the same");
}

#[test]
fn all_problems_are_told_together_by_line() {
    check(
        "workspaces:\n  quota: x\n  labels: {a: 1}\n  shared_namespace: A\n  surprise: 1\n",
        &[
            "line 2, workspaces.enabled: is missing",
            "line 2, workspaces.quota: must be a whole number from -1 to 4294967295, not text",
            "line 3, workspaces.labels.a: must be text, and 1 is a number: put it in quotes",
            "line 4, workspaces.shared_namespace: must be the name of a namespace, a DNS label, and not one of \
             Kubernetes' own; it \
             is \"A\"",
            &format!("line 5, {}", told(&format!("{SMALL}  surprise: 1\n"))[0].strip_prefix("line 4, ").unwrap()),
        ],
    );
}

#[test]
fn file_above_256_kib_and_deep_ones_are_refused() {
    check(&"#".repeat(CONFIG_BYTES_MAX + 1), &["the file is larger than 256 KiB"]);
    check(&"[".repeat(1000), &["line 1: lists and maps nest deeper than 32 levels"]);
}

#[test]
fn json_is_the_same_bytes_for_the_same_meaning() {
    let config = parse(FULL.as_bytes()).unwrap();
    let json = config.to_json();
    assert_eq!(ClusterConfig::from_json(&json).unwrap(), config);
    let reordered: String = FULL.replace("  quota: 200\n", "") + "  # a comment\n  quota: 200\n";
    assert_eq!(parse(reordered.as_bytes()).unwrap().to_json(), json);
    assert_eq!(
        parse(SMALL.as_bytes()).unwrap().to_json(),
        "{\"allow_privilege_escalation\":false,\"annotations\":{},\"default_resources\":null,\"enabled\":true,\"gateway_url\":null,\
         \"image_pull_secrets\":[],\"labels\":{},\"max_active_hours\":36,\"max_resources\":null,\"max_stopped_hours\":744,\
         \"namespace_prefix\":\"ws-\",\"network_policy\":{\"egress\":[{\"allow\":\"0.0.0.0/0\",\"except\":[\"10.0.0.0/8\",\
         \"169.254.169.254/32\",\"172.16.0.0/12\",\"192.168.0.0/16\"]}],\"enabled\":true},\"quota\":null,\"quota_per_user\":null,\"runtime_class\":null,\
         \"shared_namespace\":null,\"tools_image\":\"registry.example.com/tools:1\",\"user_namespaces\":false}"
    );
}

#[test]
fn json_of_another_version_gets_defaults_and_never_loses_what_it_says() {
    let early = ClusterConfig::from_json("{\"enabled\":true}").unwrap();
    assert_eq!(early, ClusterConfig { enabled: true, ..ClusterConfig::default() });
    assert!(ClusterConfig::from_json("{\"enabled\":true,\"later\":1}").is_err());
    assert!(ClusterConfig::from_json("[]").is_err() && ClusterConfig::from_json("").is_err());
}

fn check_any(text: &[u8]) {
    let first = parse(text);
    match &first {
        Ok(config) => {
            let json = config.to_json();
            assert_eq!(ClusterConfig::from_json(&json).as_ref().ok(), Some(config));
            assert!(config.max_active_hours + config.max_stopped_hours <= AGE_HOURS_MAX);
            assert!(!config.enabled || !config.tools_image.is_empty());
            assert!(config.shared_namespace.is_none() || config.max_resources.is_none());
            assert!(!config.allow_privilege_escalation || config.user_namespaces || config.runtime_class.is_some());
        }
        Err(problems) => assert!(!problems.is_empty()),
    }
    assert_eq!(first, parse(text));
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        check_any(&bytes);
    }

    #[test]
    fn damaged_files_are_read_or_refused_and_the_same_each_time(
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0..8_usize, "[ -~\n]{0,3}"), 1..4),
    ) {
        let mut bytes = FULL.as_bytes().to_vec();
        for (place, removed, added) in changes {
            let begin = place.index(bytes.len());
            let end = (begin + removed).min(bytes.len());
            bytes.splice(begin..end, added.into_bytes());
        }
        check_any(&bytes);
    }

    #[test]
    fn lines_left_out_are_read_or_refused(kept in prop::collection::vec(any::<bool>(), 40)) {
        let lines = FULL.lines().zip(kept).filter(|(_, kept)| *kept).map(|(line, _)| line);
        check_any(lines.collect::<Vec<_>>().join("\n").as_bytes());
    }
}
