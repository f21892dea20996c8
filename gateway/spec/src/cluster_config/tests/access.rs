//! The section `ci_access`.

use super::*;

const ACCESS: &str = "\
ci_access:
  projects:
  - id: group/shop
    default_namespace: shop
    access_as: {ci_job: {}}
    environments: [staging, 'review/*']
    protected_branches_only: true
    resource_management: {enabled: true}
  - id: group/sub/tools
  groups:
  - id: group
    access_as: {agent: {}}
    resource_management: {enabled: false}
  - id: group/sub
";

fn access(text: &str) -> CiAccess {
    parse(text.as_bytes()).unwrap().ci_access
}

fn entry(id: &str) -> AccessEntry {
    AccessEntry {
        id: id.to_owned(),
        default_namespace: None,
        access_as: AccessAs::Agent,
        environments: Vec::new(),
        protected_branches_only: false,
        resource_management: false,
    }
}

#[test]
fn access_of_the_reference_is_read_without_a_section_for_workspaces() {
    let config = parse(ACCESS.as_bytes()).unwrap();
    let shop = AccessEntry {
        default_namespace: Some("shop".to_owned()),
        access_as: AccessAs::CiJob,
        environments: vec!["staging".to_owned(), "review/*".to_owned()],
        protected_branches_only: true,
        resource_management: true,
        ..entry("group/shop")
    };
    let projects = vec![shop, entry("group/sub/tools")];
    let groups = vec![entry("group"), entry("group/sub")];
    assert_eq!(config, ClusterConfig { ci_access: CiAccess { projects, groups }, ..ClusterConfig::default() });
    assert!(!config.enabled, "workspaces are another matter");
    assert_eq!(ClusterConfig::from_json(&config.to_json()).unwrap(), config);
    assert!(parse(format!("{SMALL}{ACCESS}").as_bytes()).unwrap().enabled);
    for empty in ["ci_access:\n", "ci_access: {}\n", "ci_access: {projects: [], groups: }\n"] {
        assert!(access(empty).is_empty(), "{empty}");
    }
    let json = parse(SMALL.as_bytes()).unwrap().to_json();
    assert!(!json.contains("ci_access"), "what was stored before stays byte for byte: {json}");
}

#[test]
fn most_specific_entry_counts() {
    let access = access(ACCESS);
    for (path, id) in [
        ("group/shop", Some("group/shop")),
        ("Group/SHOP", Some("group/shop")),
        ("group/sub/tools", Some("group/sub/tools")),
        ("group/sub/other", Some("group/sub")),
        ("group/sub/deep/er", Some("group/sub")),
        ("group/subway", Some("group")),
        ("group/x", Some("group")),
        ("group", None),
        ("group/", None),
        ("groups/x", None),
        ("other/group/shop", None),
        ("", None),
        ("grö", None),
        ("groüp/x", None),
    ] {
        assert_eq!(access.entry(path).map(|entry| entry.id.as_str()), id, "{path}");
    }
}

#[test]
fn environments_are_matched_whole_with_stars_for_any_text() {
    let allows = |patterns: &[&str], name: &str| {
        AccessEntry { environments: patterns.iter().map(ToString::to_string).collect(), ..entry("a/b") }
            .allows_environment(name)
    };
    assert!(allows(&[], "anything"));
    for (pattern, good, bad) in [
        ("staging", &["staging"][..], &["Staging", "staging2", "", "x/staging"][..]),
        ("review/*", &["review/a", "review/a/b", "review/"], &["review", "xreview/a"]),
        ("*", &["", "a", "a/b"], &[]),
        ("*/eu", &["a/eu", "/eu", "eu/eu"], &["eu", "a/eu2"]),
        ("a*b*c", &["abc", "axbxc", "abbcc", "abcbc"], &["ac", "abcd", "acb"]),
        ("a*a", &["aa", "axa"], &["a"]),
        ("**", &["", "a"], &[]),
        ("a.c", &["a.c"], &["abc"]),
    ] {
        for name in good {
            assert!(allows(&[pattern], name), "{pattern} and {name}");
        }
        for name in bad {
            assert!(!allows(&[pattern], name), "{pattern} and {name}");
        }
    }
    assert!(allows(&["x", "y*"], "yes"));
}

#[test]
fn mistakes_of_access_are_told_by_name() {
    let wrong = "is not supported: the agent acts as itself (agent) or as the job (ci_job)";
    for (lines, expected) in [
        ("ci_access: []\n", "line 1, ci_access: must be a map, not a list"),
        (
            "ci_access: {instance: {}}\n",
            "line 1, ci_access.instance: is not supported: name the groups whose projects may use the cluster",
        ),
        ("ci_access: {users: []}\n", "line 1, ci_access.users: unknown key; known here: projects, groups"),
        ("ci_access: {projects: [{}]}\n", "line 1, ci_access.projects[0].id: is missing"),
        (
            "ci_access: {projects: [{id: shop}]}\n",
            "line 1, ci_access.projects[0].id: must be the path of a project, such as group/project; it is \"shop\"",
        ),
        (
            "ci_access: {groups: [{id: /a}]}\n",
            "line 1, ci_access.groups[0].id: must be the path of a group, such as group/subgroup; it is \"/a\"",
        ),
        (
            "ci_access:\n  projects:\n  - id: a/b\n  - id: A/b\n",
            "line 4, ci_access.projects[1].id: is there twice; the first is on line 3",
        ),
        (
            "ci_access: {projects: [{id: a/b, resource_management: true}]}\n",
            "line 1, ci_access.projects[0].resource_management: must be a map, not true or false",
        ),
        (
            "ci_access: {projects: [{id: a/b, resource_management: {enabled: yes}}]}\n",
            "line 1, ci_access.projects[0].resource_management.enabled: must be true or false, not text",
        ),
        (
            "ci_access: {projects: [{id: a/b, default_namespace: kube-system}]}\n",
            "line 1, ci_access.projects[0].default_namespace: must be the name of a namespace, a DNS label, and not one of Kubernetes' \
             own; it is \"kube-system\"",
        ),
        (
            "ci_access: {projects: [{id: a/b, environments: ['']}]}\n",
            "line 1, ci_access.projects[0].environments[0]: must have 1 to 255 bytes",
        ),
        (
            "ci_access: {projects: [{id: a/b, access_as: {}}]}\n",
            "line 1, ci_access.projects[0].access_as: must name one of agent and ci_job, such as ci_job: {}",
        ),
        (
            "ci_access: {projects: [{id: a/b, access_as: {agent: {}, ci_job: {}}}]}\n",
            "line 1, ci_access.projects[0].access_as: must name one of agent and ci_job",
        ),
        (
            "ci_access: {projects: [{id: a/b, access_as: {ci_job: {name: x}}}]}\n",
            "line 1, ci_access.projects[0].access_as.ci_job: must be {}",
        ),
    ] {
        check(lines, &[expected]);
    }
    for key in ["impersonate", "ci_user", "user"] {
        let text = format!("ci_access: {{projects: [{{id: a/b, access_as: {{{key}: {{username: x}}}}}}]}}\n");
        check(&text, &[&format!("line 1, ci_access.projects[0].access_as.{key}: {wrong}")]);
    }
    let entries = |count: usize| (0..count).map(|index| format!("  - id: g{index}\n")).collect::<String>();
    assert!(parse(format!("ci_access:\n  groups:\n{}", entries(500)).as_bytes()).is_ok());
    check(
        &format!("ci_access:\n  groups:\n{}", entries(501)),
        &["line 3, ci_access.groups: has 501 entries, and must not have more than 500"],
    );
}

proptest! {
    #[test]
    fn pattern_without_stars_is_the_name_itself_and_any_text_is_answered(pattern in "[a*]{0,6}", name in "[a]{0,6}") {
        let allows = AccessEntry { environments: vec![pattern.clone()], ..entry("a/b") }.allows_environment(&name);
        let fixed = pattern.replace('*', "").len();
        let expected = if pattern.contains('*') { fixed <= name.len() } else { pattern == name };
        prop_assert_eq!(allows, expected, "{} {}", pattern, name);
    }

    #[test]
    fn path_has_an_entry_if_it_is_in_a_group_that_has_one(path in "(group/|Group/|)[a-zA-Zé/]{0,8}") {
        let access = access(ACCESS);
        let is_in = path.to_ascii_lowercase().starts_with("group/") && path.len() > 6;
        prop_assert_eq!(access.entry(&path).is_some_and(|entry| !entry.id.is_empty()), is_in);
    }
}

#[test]
fn default_namespaces_are_those_of_all_entries_each_once() {
    let text = "ci_access:
  projects:
  - {id: a/b, default_namespace: shop}
  - {id: a/c}
  groups:
  - {id: d, default_namespace: team}
  - {id: e, default_namespace: shop}
";
    assert_eq!(access(text).default_namespaces(), ["shop", "team"]);
    assert_eq!(CiAccess::default().default_namespaces(), [""; 0]);
}
