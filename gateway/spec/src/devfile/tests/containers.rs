//! What containers have to say.

use super::*;

#[test]
fn container_has_an_image_and_nothing_that_workspaces_have_not() {
    check(&SMALL.replace("image: a/b:1", "env: []"), &["line 6, components[0].container.image: is missing"]);
    let image = "must be a reference to an image, such as registry.example.com/team/image:1.0; it is";
    for bad in ["", "a b", "a;reboot", "a\nb", "'x'"] {
        let text = SMALL.replace("a/b:1", &format!("{bad:?}"));
        check(&text, &[&format!("line 6, components[0].container.image: {image} {bad:?}")]);
    }
    for (key, why) in [
        ("dedicatedPod: true", "dedicatedPod: is not supported: all containers of a workspace are in one pod"),
        ("sourceMapping: /src", "sourceMapping: is not supported: the project is in /projects"),
        ("mountSources: false", "mountSources: is not supported: the project is in each container"),
        ("annotation: {}", "annotation: is not supported: annotations come from the cluster's configuration"),
    ] {
        check_with(&format!("    {key}\n"), &[&format!("line 7, components[0].container.{why}")]);
    }
    let known = "known here: image, memoryRequest, memoryLimit, cpuRequest, cpuLimit, env, endpoints, volumeMounts, \
         command, args";
    check_with("    memory: 1Gi\n", &[&format!("line 7, components[0].container.memory: unknown key; {known}")]);
    check_with("- {name: b, container: [x]}\n", &["line 7, components[1].container: must be a map, not a list"]);
}

#[test]
fn resources_are_quantities_and_requests_within_limits() {
    let form = "is not a Kubernetes quantity such as 500m, 2, 512Mi or 1.5Gi; it is";
    for key in ["memoryRequest", "memoryLimit", "cpuRequest", "cpuLimit"] {
        let path = format!("line 7, components[0].container.{key}");
        check_with(&format!("    {key}: 512MB\n"), &[&format!("{path}: {form} \"512MB\"")]);
        check_with(&format!("    {key}: '-1'\n"), &[&format!("{path}: must not be negative; it is \"-1\"")]);
        check_with(&format!("    {key}: 9Ei\n"), &[&format!("{path}: is too large; it is \"9Ei\"")]);
        check_with(
            &format!("    {key}: 2\n"),
            &[&format!("{path}: must be text, and 2 is a number: put it in quotes")],
        );
    }
    check_with(
        "    memoryRequest: 1Gi\n    memoryLimit: 1000Mi\n",
        &["line 7, components[0].container.memoryRequest: is more than memoryLimit, 1000Mi"],
    );
    check_with(
        "    cpuLimit: 1500m\n    cpuRequest: '2'\n",
        &["line 8, components[0].container.cpuRequest: is more than cpuLimit, 1500m"],
    );
    check_with(
        "    memoryLimit: 512m\n",
        &["line 7, components[0].container.memoryLimit: is not a whole number of bytes: m is a thousandth of one, \
             M and Mi are \
           millions; it is \"512m\""],
    );
    check_with("    memoryRequest: 1Gi\n    memoryLimit: 1024Mi\n    cpuRequest: '1'\n    cpuLimit: 1000m\n", &[]);
}

#[test]
fn environment_has_each_name_once_and_none_of_ours() {
    let at = "line 7, components[0].container.env[0]";
    let name =
        "name: must be the name of an environment variable: letters, digits and underscores, no digit first; it is";
    for bad in ["A B", "A=B", "1A", "$(A)", ""] {
        check_with(&format!("    env: [{{name: '{bad}', value: x}}]\n"), &[&format!("{at}.{name} {bad:?}")]);
    }
    check_with("    env: [{name: GW_TOKEN, value: x}]\n", &[&format!("{at}.name: {RESERVED}")]);
    check_with("    env: [{name: PROJECT_SOURCE, value: x}]\n", &[&format!("{at}.name: is set by the gateway")]);
    check_with("    env: [{name: A}]\n", &[&format!("{at}.value: is missing")]);
    check_with("    env: [{name: A, value: }]\n", &[&format!("{at}.value: is missing")]);
    check_with("    env: [{value: a}]\n", &[&format!("{at}.name: is missing")]);
    check_with("    env: [{name: A, value: yes}, {name: B, value: ''}]\n", &[]);
    check_with(
        "    env: [{name: A, value: 1}]\n",
        &[&format!("{at}.value: must be text, and 1 is a number: put it in quotes")],
    );
    check_with("    env: [{name: A, value: a, x: 1}]\n", &[&format!("{at}.x: unknown key; known here: name, value")]);
    check_with("    env: [A=1]\n", &[&format!("{at}: must be a map, not text")]);
    check_with(
        "    env:\n    - {name: A, value: a}\n    - {name: A, value: b}\n",
        &["line 9, components[0].container.env[1].name: is set twice in this container; the first is on line 8"],
    );
}

#[test]
fn endpoints_have_ports_of_their_own() {
    let at = "line 7, components[0].container.endpoints[0]";
    let port = "targetPort: must be a whole number from 1 to 65535";
    for (bad, why) in [
        ("0", ", and is 0"),
        ("65536", ", and is 65536"),
        ("-1", ", and is -1"),
        ("80.5", ", and is 80.5"),
        ("'80'", ", not text"),
    ] {
        check_with(&format!("    endpoints: [{{name: a, targetPort: {bad}}}]\n"), &[&format!("{at}.{port}{why}")]);
    }
    check_with(
        "    endpoints: [{name: a, targetPort: 60001}]\n",
        &[&format!("{at}.targetPort: 60001 is the port of the editor")],
    );
    check_with(
        "    endpoints: [{name: a, targetPort: 60002}]\n",
        &[&format!("{at}.targetPort: 60002 is the port of the terminal")],
    );
    check_with(
        "    endpoints: [{name: a, targetPort: 60003}]\n",
        &[&format!("{at}.targetPort: 60003 is the port of the request inspector")],
    );
    check_with("    endpoints: [{name: a}]\n", &[&format!("{at}.targetPort: is missing")]);
    check_with("    endpoints: [{targetPort: 1}]\n", &[&format!("{at}.name: is missing")]);
    check_with("    endpoints: [{name: gw_x, targetPort: 1}]\n", &[&format!("{at}.name: {RESERVED}")]);
    check_with("    endpoints: [{name: 'a;b', targetPort: 1}]\n", &[&format!("{at}.name: {LABEL} \"a;b\"")]);
    check_with(
        "    endpoints: [{name: a, targetPort: 1, exposure: all}]\n",
        &[&format!("{at}.exposure: must be public, internal or none, not \"all\"")],
    );
    check_with(
        "    endpoints: [{name: a, targetPort: 1, protocol: sctp}]\n",
        &[&format!("{at}.protocol: must be one of http, https, ws, wss, tcp, udp, not \"sctp\"")],
    );
    check_with(
        "    endpoints: [{name: a, targetPort: 1, secure: 1}]\n",
        &[&format!("{at}.secure: must be true or false, not a number")],
    );
    check_with(
        "    endpoints: [{name: a, targetPort: 1, annotation: {}}]\n",
        &[&format!("{at}.annotation: is not supported: annotations come from the cluster's configuration")],
    );
    check_with(
        "    endpoints: [{name: a, targetPort: 1, port: 1}]\n",
        &[&format!(
            "{at}.port: unknown key; known here: name, targetPort, exposure, protocol, secure, path, attributes"
        )],
    );
    check_with(
        "    endpoints:\n    - {name: a, targetPort: 80}\n- name: b\n  container:\n    image: c\n    endpoints:\n    \
         - {name: a, targetPort: 80}\n",
        &[
            "line 13, components[1].container.endpoints[0].name: is the name of another endpoint, of component \
             \"main\"",
            "line 13, components[1].container.endpoints[0].targetPort: 80 is the port of endpoint \"a\" of component \
             \"main\": \
             all containers of a workspace share one network",
        ],
    );
}

#[test]
fn entry_point_is_either_replaced_or_given() {
    let no_effect =
        "has no effect while overrideCommand is true, which it is for the main component unless set to false";
    check_with("    command: [a]\n", &[&format!("line 7, components[0].container.command: {no_effect}")]);
    check_with("    args: [a]\n", &[&format!("line 7, components[0].container.args: {no_effect}")]);
    check_with("    args: []\n", &[]);
    check_with("- {name: b, container: {image: c, command: [a], args: [b]}}\n", &[]);
    check_with(
        "- {name: b, attributes: {overrideCommand: true}, container: {image: c, args: [b]}}\n",
        &[&format!("line 7, components[1].container.args: {no_effect}")],
    );
    check_with(
        "- {name: b, attributes: {overrideCommand: 'no'}, container: {image: c}}\n",
        &["line 7, components[1].attributes.overrideCommand: must be true or false, not text"],
    );
    check_with(
        "- {name: b, container: {image: c, args: [8080, ~]}}\n",
        &[
            "line 7, components[1].container.args[0]: must be text, and 8080 is a number: put it in quotes",
            "line 7, components[1].container.args[1]: must be text; write \"\" for an empty one",
        ],
    );
    check_with(
        "- {name: b, container: {image: c, args: run}}\n",
        &["line 7, components[1].container.args: must be a list, not text"],
    );
}

#[test]
fn endpoints_say_how_to_speak_to_their_apps_and_only_propose_an_audience() {
    let named = |endpoint: &str| {
        let text = format!("{SMALL}    endpoints: [{{name: a, targetPort: 80{endpoint}}}]\n");
        let devfile = parse(text.as_bytes()).expect("a devfile");
        devfile.named_ports().into_iter().next().map(|named| {
            let proposed = named.proposed.map(|audience| audience.to_string()).unwrap_or_default();
            format!("{} {} {proposed}", named.protocol.as_str(), named.host.as_str()).trim_end().to_owned()
        })
    };
    for (endpoint, expected) in [
        ("", Some("http1 auto")),
        (", protocol: https", Some("https auto")),
        (", protocol: wss, secure: true", Some("https auto")),
        (", protocol: ws", Some("http1 auto")),
        (", protocol: tcp, exposure: internal", Some("tcp auto")),
        (", protocol: udp", None),
        (", exposure: none", None),
        (", exposure: public", Some("http1 auto public")),
        (", protocol: https, attributes: {gateway/protocol: http1}", Some("http1 auto")),
        (", attributes: {gateway/protocol: h2, gateway/host: localhost, other: [1]}", Some("h2 localhost")),
        (", attributes: {gateway/protocol: h2s, gateway/share: 'group:dev'}", Some("h2s auto group:dev")),
        (", exposure: public, attributes: {gateway/share: signed-in}", Some("http1 auto signed-in")),
    ] {
        assert_eq!(named(endpoint).as_deref(), expected, "{endpoint}");
    }
    let at = "line 7, components[0].container.endpoints[0].attributes";
    for (attributes, problem) in [
        ("gateway/protocol: http3", "protocol: is \"http3\": a port's protocol is http1, h2, https, h2s or tcp"),
        ("gateway/host: example.org", "host: is \"example.org\": a port's host is auto, original or localhost"),
        (
            "gateway/share: everybody",
            "share: is \"everybody\": an audience is `user:NAME`, `group:NAME`, `signed-in` or `public`",
        ),
    ] {
        let (key, why) = problem.split_once(": ").expect("a place");
        let told = parse(
            format!("{SMALL}    endpoints: [{{name: a, targetPort: 80, attributes: {{{attributes}}}}}]\n").as_bytes(),
        );
        let told = told.expect_err("refused").to_string();
        assert!(told.starts_with(at) && told.contains(key) && told.ends_with(why), "{told}");
    }
    let closed = parse(
        format!("{SMALL}    endpoints: [{{name: a, targetPort: 80, exposure: none, attributes: {{gateway/share: public}}}}]\n").as_bytes(),
    );
    assert!(closed.expect_err("refused").to_string().contains("`exposure: none`"));
}
