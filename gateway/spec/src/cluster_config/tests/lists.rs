//! Networks, amounts, secrets, labels and annotations.

use super::*;

#[test]
fn network_policy_has_blocks_of_addresses() {
    let block =
        "must be a block of addresses such as 10.0.0.0/8 or 2001:db8::/32, without bits after its length; it is";
    for bad in [
        "10.0.0.0",
        "10.0.0.1/8",
        "10.0.0.0/33",
        "10.0.0.0/08",
        "10.0.0.0/+8",
        "10.0.0/8",
        "x/8",
        "::/129",
        "2001:db8::1/64",
        "",
    ] {
        let path = "line 4, workspaces.network_policy.egress[0].allow";
        check_with(
            &format!("  network_policy: {{egress: [{{allow: '{bad}'}}]}}\n"),
            &[&format!("{path}: {block} {bad:?}")],
        );
    }
    for good in ["0.0.0.0/0", "10.1.2.3/32", "::/0", "::1/128", "fd00::/8"] {
        check_with(&format!("  network_policy: {{egress: [{{allow: '{good}'}}]}}\n"), &[]);
    }
    for (allow, except) in [
        ("10.0.0.0/8", "11.0.0.0/16"),
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("10.0.0.0/8", "0.0.0.0/0"),
        ("::/0", "10.0.0.0/8"),
    ] {
        check_with(
            &format!("  network_policy: {{egress: [{{allow: '{allow}', except: ['{except}']}}]}}\n"),
            &[&format!("line 4, workspaces.network_policy.egress[0].except[0]: must be a part of {allow}")],
        );
    }
    check_with(
        "  network_policy: {egress: [{except: []}]}\n",
        &["line 4, workspaces.network_policy.egress[0].allow: is missing"],
    );
    check_with(
        "  network_policy: {egress: [10.0.0.0/8]}\n",
        &["line 4, workspaces.network_policy.egress[0]: must be a map, not text"],
    );
    check_with(
        "  network_policy: {enabled: 0}\n",
        &["line 4, workspaces.network_policy.enabled: must be true or false, not a number"],
    );
    let off = parse(format!("{SMALL}  network_policy: {{enabled: false, egress: []}}\n").as_bytes()).unwrap();
    assert_eq!(off.network_policy, NetworkPolicy { enabled: false, egress: Vec::new() });
}

#[test]
fn resources_are_whole_and_requests_within_limits() {
    for key in ["default_resources_per_container", "max_resources_per_workspace"] {
        let path = format!("line 4, workspaces.{key}");
        check_with(&format!("  {key}: {{}}\n"), &[]);
        for (value, expected) in [
            ("{requests: {cpu: 1, memory: 1}}", vec![".limits: is missing"]),
            ("{limits: {cpu: 1, memory: 1}}", vec![".requests: is missing"]),
            (
                "{requests: {cpu: 1}, limits: {memory: 1}}",
                vec![".limits.cpu: is missing", ".requests.memory: is missing"],
            ),
            (
                "{requests: {cpu: 2, memory: 2Gi}, limits: {cpu: 1500m, memory: 2000Mi}}",
                vec![
                    ".requests.cpu: is more than the limit, 1500m",
                    ".requests.memory: is more than the limit, 2000Mi",
                ],
            ),
            (
                "{requests: {cpu: x, memory: 1}, limits: {cpu: -1, memory: 512m}}",
                vec![
                    ".limits.cpu: must not be negative; it is \"-1\"",
                    ".limits.memory: is not a whole number of bytes: m is a thousandth of one, M and Mi are \
                     millions; it is \"512m\"",
                    ".requests.cpu: is not a Kubernetes quantity such as 500m, 2, 512Mi or 1.5Gi; it is \"x\"",
                ],
            ),
            (
                "{requests: {cpu: 1, memory: 1, gpu: 1}, limits: {cpu: 1, memory: 1}}",
                vec![".requests.gpu: unknown key; known here: cpu, memory"],
            ),
            ("[]", vec![": must be a map, not a list"]),
        ] {
            let mut told = told(&format!("{SMALL}  {key}: {value}\n"));
            told.sort();
            let expected: Vec<_> = expected.iter().map(|it| format!("{path}{it}")).collect();
            assert_eq!(told, expected, "{value}");
        }
    }
}

#[test]
fn pull_secrets_are_named_once_and_in_the_shared_namespace() {
    let at = "line 4, workspaces.image_pull_secrets";
    check_with("  image_pull_secrets: [{name: a}]\n", &[&format!("{at}[0].namespace: is missing")]);
    check_with("  image_pull_secrets: [{namespace: a}]\n", &[&format!("{at}[0].name: is missing")]);
    check_with(
        "  image_pull_secrets: [{name: A, namespace: b.c}]\n",
        &[
            &format!("{at}[0].name: must be the name of a secret: a-z, 0-9 and dashes inside; it is \"A\""),
            &format!("{at}[0].namespace: must be the name of a namespace: a-z, 0-9 and dashes inside; it is \"b.c\""),
        ],
    );
    check_with(
        "  image_pull_secrets: [{name: a, namespace: b}, {name: a, namespace: c}]\n",
        &[&format!("{at}[1].name: is the name of another secret, on line 4")],
    );
    check_with("  image_pull_secrets: {}\n", &[&format!("{at}: must be a list, not a map")]);
    check_with(
        "  image_pull_secrets: [{name: a, namespace: b}]\n  shared_namespace: all\n",
        &[&format!("{at}[0].namespace: must be \"all\", the shared_namespace: nothing is copied there")],
    );
    check_with("  image_pull_secrets: [{name: a, namespace: all}]\n  shared_namespace: all\n", &[]);
}

#[test]
fn labels_and_annotations_are_kubernetes_and_not_ours() {
    let key = "must be a key such as name or example.com/name, the name with at most 63 letters and digits, and \
         dashes, \
               underscores and dots inside; it is";
    for map in ["labels", "annotations"] {
        let at = format!("line 4, workspaces.{map}");
        for (bad, shown) in [("a b", "\"a b\""), ("Example.com/a", "\"Example.com/a\""), ("-a", "-a"), ("a/", "a/")] {
            check_with(&format!("  {map}: {{'{bad}': x}}\n"), &[&format!("{at}.{shown}: {key} {bad:?}")]);
        }
        for (bad, prefix) in [
            ("workspace-gateway.dev/a", "workspace-gateway.dev"),
            ("x.workspace-gateway.dev/a", "workspace-gateway.dev"),
            ("cli-utils.sigs.k8s.io/inventory-id", "cli-utils.sigs.k8s.io"),
            ("config.k8s.io/owning-inventory", "config.k8s.io"),
        ] {
            let expected = format!("{at}.{bad:?}: must not have the prefix {prefix}, which is reserved");
            check_with(&format!("  {map}: {{{bad}: x}}\n"), &[&expected]);
        }
        check_with(&format!("  {map}: {{notworkspace-gateway.dev/a: x, app.kubernetes.io/part-of: y}}\n"), &[]);
        check_with(
            &format!("  {map}: {{a: 1}}\n"),
            &[&format!("{at}.a: must be text, and 1 is a number: put it in quotes")],
        );
        check_with(&format!("  {map}: [a]\n"), &[&format!("{at}: must be a map, not a list")]);
    }
    check_with(
        "  labels: {a: 'x y'}\n",
        &["line 4, workspaces.labels.a: must be a label's value: at most 63 letters, digits, and dashes, \
             underscores and dots \
           inside; it is \"x y\""],
    );
    check_with(
        &format!("  annotations: {{a: '{}'}}\n", "x".repeat(64 * 1024)),
        &["line 4, workspaces.annotations: are 65537 bytes, and must not be more than 65536"],
    );
}
