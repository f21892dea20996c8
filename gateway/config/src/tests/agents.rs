//! Lists of tables, with `auth.agents` as the example: everything told at once, nothing guessed.

use super::*;

const BOTH: &str = r#"
zone = "ws.test"
public_url = "https://gateway.test"

[[auth.agents.kubernetes]]
issuer = "https://kubernetes.default.svc.cluster.local"
api_server = "https://10.0.0.1:6443"
ca_file = "/ca.crt"
token_file = "/reviewer.token"
recheck = "30s"
[[auth.agents.kubernetes.rules]]
namespace = "workspaces"
service_account = "agent"
workspace = "{pod}"
[[auth.agents.kubernetes.rules]]
namespace = "ws-*"
service_account = "agent"
workspace = "{namespace}--{service_account}"

[[auth.agents.ci]]
issuer = "https://gitlab.example.com"
once_per = "project_id job_id"
[[auth.agents.ci.rules]]
workspace = "ci-{project_path}--{job_id}"
owner = "{user_login}"
create = true
claims = { project_path = "group/project", ref_protected = true, "kubernetes.io" = "x" }
"#;

#[test]
fn lists_of_tables_become_typed_entries_in_their_order() {
    let auth = load(BOTH, &[]).unwrap().auth.agents;
    let [cluster] = auth.kubernetes.as_slice() else { panic!("{auth:?}") };
    assert_eq!(&*auth.uri_prefix, "spiffe://ws.test/workspace/");
    assert_eq!(&*cluster.audience, "https://gateway.test", "the gateway itself unless somebody says otherwise");
    assert_eq!(cluster.recheck, Duration::from_secs(30));
    let namespaces: Vec<_> = cluster.rules.iter().map(|rule| rule.namespace.clone()).collect();
    let expected = [NamespacePattern::Exactly("workspaces".into()), NamespacePattern::StartingWith("ws-".into())];
    assert_eq!(namespaces, expected);
    let [ci] = auth.ci.as_slice() else { panic!("{auth:?}") };
    assert_eq!(ci.once_per, ["project_id".into(), "job_id".into()]);
    let [rule] = ci.rules.as_slice() else { panic!("{ci:?}") };
    let claims: Vec<_> = rule.claims.iter().map(|(name, value)| (&**name, &**value)).collect();
    assert_eq!(claims, [("kubernetes.io", "x"), ("project_path", "group/project"), ("ref_protected", "true")]);
    assert!(rule.create);
}

#[test]
fn mistakes_inside_lists_are_told_at_once_with_their_lines() {
    let text = "[[auth.agents.kubernetes]]\nissuer = 'k'\nisuer = 'x'\napi_server = 'http://10.0.0.1'\nrecheck = '2m'\n\
        [[auth.agents.kubernetes.rules]]\nnamespace = 'A'\nworkspace = '{node}'\n\
        [[auth.agents.kubernetes]]\nissuer = 'k'\napi_server = 'https://10.0.0.1'\n\
        [[auth.agents.ci]]\n[[auth.agents.ci.rules]]\nworkspace = '{a}-{b}'\nowner = 'a b'\ncreate = 'yes'\n\
        [[auth.agents.vm]]\nx = 1\n";
    insta::assert_snapshot!(problems(text, &[]).join("\n"), @r#"
    :4: auth.agents.kubernetes[0].api_server = "http://10.0.0.1": the scheme must be https; http is for localhost, 127.0.0.1 and [::1] only; accepted: an https URL; http for this machine only
    :5: auth.agents.kubernetes[0].recheck = "2m": must be from 1s to 1m
    :7: auth.agents.kubernetes[0].rules[0].namespace = "A": not the name of a namespace; accepted: the name of a namespace, or the beginning of some and a star such as `ws-*`
    :6: auth.agents.kubernetes[0].rules[0].service_account: is missing; accepted: 1 to 512 printable ASCII characters without spaces
    :8: auth.agents.kubernetes[0].rules[0].workspace = "{node}": {node} is no placeholder; there are {namespace}, {pod}, {service_account}
    :11: auth.agents.kubernetes[1].api_server = "https://10.0.0.1": needs token_file beside it: who asks has to say who
    :9: auth.agents.kubernetes[1]: needs rules: without any ([[…kubernetes.rules]]), no token would fit
    :12: auth.agents.ci[0].issuer: is missing; accepted: an https URL; http for this machine only
    :14: auth.agents.ci[0].rules[0].workspace = "{a}-{b}": between two placeholders there must be exactly one `--`, so that no two credentials give the same name; accepted: a name with placeholders such as `{pod}` or `ci-{project_path}--{job_id}`
    :15: auth.agents.ci[0].rules[0].owner = "a b": a user name has 1 to 128 printable ASCII characters and no spaces; accepted: the name of a user, or one with a placeholder such as `{user_login}`
    :16: auth.agents.ci[0].rules[0].create = "yes": neither true nor false; accepted: `true` or `false`
    :13: auth.agents.ci[0].rules[0]: needs claims: without any, every job of the issuer would fit
    :1: auth.agents.kubernetes: the issuer "k" has two sections
    :3: auth.agents.kubernetes[0].isuer: unknown key; did you mean auth.agents.kubernetes[0].issuer?
    :17: auth.agents.vm: unknown key
    "#);
}

#[test]
fn what_is_no_list_of_tables_is_told_so() {
    for (text, told) in [
        ("zone = ['a']\n", ":1: zone[0]: is no table, and lists have tables only"),
        ("zone = [{ a = 1 }]\n", ":1: zone: is a list, and takes one value"),
        ("auth.agents.ci = 'x'\n", ":1: auth.agents.ci: is a list: write [[auth.agents.ci]]"),
        ("[[auth.agents.cis]]\nissuer = 'x'\n", ":1: auth.agents.cis: unknown key"),
        ("[auth.agents]\n'ci[0]' = 'x'\n", ":2: auth.agents.\"ci[0]\": unknown key"),
    ] {
        let found = problems(text, &[]);
        assert!(found.iter().any(|line| line.starts_with(told)), "{told}: {found:?}");
    }
    let bad = Config::load(None, &variables(&[("GATEWAY_AUTH__AGENTS__CI[0]__ISSUER", "x")])).unwrap_err().to_string();
    assert!(bad.ends_with("lists are set in the file only"), "{bad}");
}

#[test]
fn entry_that_would_let_everybody_in_or_nobody_is_refused() {
    let ci = "[[auth.agents.ci]]\nissuer = 'https://ci.test'\n";
    let rule = "[[auth.agents.ci.rules]]\nworkspace = 'a'\nowner = 'b'\n";
    for (text, told) in [
        (ci.to_owned(), "needs rules"),
        (format!("{ci}{rule}"), "every job of the issuer would fit"),
        (format!("{ci}{rule}[auth.agents.ci.rules.claims]\n"), "every job of the issuer would fit"),
        (format!("{ci}{rule}claims.a.b = 'c'\n"), "more than one name"),
        (format!("{ci}{rule}claims.a = 'c'\n{ci}{rule}claims.a = 'c'\n"), "has two sections"),
        ("auth.agents.mtls.required = true\n".to_owned(), "needs tls.agents.client_ca"),
        ("auth.agents.mtls.uri_prefix = 'workspace'\n".to_owned(), "not the beginning of a URI"),
    ] {
        let found = problems(&text, &[]);
        assert!(found.iter().any(|line| line.contains(told)), "{told}: {found:?}");
    }
}
