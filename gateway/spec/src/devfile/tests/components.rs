//! What components have to say.

use super::*;

const NO_MAIN: &str = "exactly one container must have the attribute gateway/inject-editor: true, and none has; \
     editor and \
                       agent run there";
const OTHER_COMPONENT: &str = "is not supported: a component is a container or a volume";
const OWN_POD: &str = "is not supported: the pod is made by the gateway's rules alone";

#[test]
fn components_are_a_list_of_named_containers_and_volumes() {
    check("schemaVersion: 2.2.0\n", &["line 1, components: is missing"]);
    check("schemaVersion: 2.2.0\ncomponents: []\n", &["line 2, components: must have at least one component"]);
    check("schemaVersion: 2.2.0\ncomponents: {a: 1}\n", &["line 2, components: must be a list, not a map"]);
    check_with("- text\n", &["line 7, components[1]: must be a map, not text"]);
    check_with("- volume: {}\n", &["line 7, components[1].name: is missing"]);
    check_with(
        "- {name: 1, volume: {}}\n",
        &["line 7, components[1].name: must be text, and 1 is a number: put it in quotes"],
    );
    check_with(
        "- {name: true, volume: {}}\n",
        &["line 7, components[1].name: must be text, and true is none: put it in quotes"],
    );
    check_with("- name: a\n", &["line 7, components[1]: has no type: it must have a container or a volume"]);
    check_with(
        "- {name: a, volume: {}, container: {image: b}}\n",
        &["line 7, components[1]: is a container and a volume: it can be one of them"],
    );
    for name in ["kubernetes", "openshift", "image", "plugin", "custom"] {
        check_with(
            &format!("- {{name: a, {name}: {{}}}}\n"),
            &[&format!("line 7, components[1].{name}: {OTHER_COMPONENT}")],
        );
    }
    check_with(
        "- {name: a, volume: {}, size: 1}\n",
        &["line 7, components[1].size: unknown key; known here: name, attributes, container, volume"],
    );
    check_with(
        "- {name: main, volume: {}}\n",
        &["line 7, components[1].name: is the name of another component, on line 3"],
    );
    for name in ["gw-a", "GW-a", "gW_a", "gw-"] {
        check_with(
            &format!("- {{name: {name}, volume: {{}}}}\n"),
            &[&format!("line 7, components[1].name: {RESERVED}")],
        );
    }
    for name in ["A", "a_b", "a.b", "-a", "$(a)", "ä"] {
        let expected = format!("line 7, components[1].name: {LABEL} {name:?}");
        check_with(&format!("- {{name: '{name}', volume: {{}}}}\n"), &[&expected]);
    }
}

#[test]
fn exactly_one_container_is_the_main_component() {
    check(&SMALL.replace("inject-editor: true", "inject-editor: false"), &[&format!("line 3, components: {NO_MAIN}")]);
    check(&SMALL.replace("gateway/", "gateways/"), &[&format!("line 3, components: {NO_MAIN}")]);
    check(&SMALL.replace("gateway/", "gl/"), &[]);
    check(
        &SMALL.replace(": true", ": \"true\""),
        &[
            &format!("line 3, components: {NO_MAIN}"),
            "line 4, components[0].attributes.gateway/inject-editor: must be true or false, not text",
        ],
    );
    check(
        &SMALL.replace(": true", ": true, gl/inject-editor: false"),
        &["line 4, components[0].attributes.gl/inject-editor: says the same as gateway/inject-editor: keep one of \
             them"],
    );
    check_with(
        "- name: b\n  attributes: {gl/inject-editor: true}\n  container: {image: c}\n",
        &["line 8, components[1].attributes.gl/inject-editor: only one container can be the main one, and \"main\" \
             is, on line 4"],
    );
    check_with(
        "- {name: b, attributes: {gateway/inject-editor: true}, volume: {}}\n",
        &["line 7, components[1].attributes.gateway/inject-editor: only a container can be the main component"],
    );
    for key in ["pod-overrides", "container-overrides"] {
        check(
            &SMALL.replace(": true", &format!(": true, {key}: {{}}")),
            &[&format!("line 4, components[0].attributes.{key}: {OWN_POD}")],
        );
    }
}

#[test]
fn volumes_and_mounts_fit_together() {
    let at = "line 7, components[0].container.volumeMounts[0]";
    let mount = |mount: &str| {
        format!("    volumeMounts: [{mount}]\n- {{name: v, volume: {{}}}}\n- {{name: w, volume: {{}}}}\n")
    };
    check_with(&mount("{name: v}, {name: w, path: /x}, {name: v, path: /y}"), &[]);
    check_with(&mount("{name: x}"), &[&format!("{at}.name: no volume has the name \"x\"")]);
    check_with(&mount("{name: main}"), &[&format!("{at}.name: \"main\" is a container, not a volume")]);
    check_with(&mount("{path: /x}"), &[&format!("{at}.name: is missing")]);
    check_with(&mount("{name: v, size: 1}"), &[&format!("{at}.size: unknown key; known here: name, path")]);
    for bad in ["x", "/a/../b", "/a:b", "/a\nb", "/./a", ""] {
        let expected = format!("{at}.path: must be an absolute path without . and .. and colons; it is {bad:?}");
        check_with(&mount(&format!("{{name: v, path: {bad:?}}}")), &[&expected]);
    }
    check_with(&mount("{name: v, path: /}"), &[&format!("{at}.path: must not be /: it would hide the image")]);
    for own in ["/projects", "/workspace-gateway", "/workspace-gateway/files"] {
        check_with(
            &mount(&format!("{{name: v, path: {own}/}}")),
            &[&format!("{at}.path: {own:?} is mounted by the gateway")],
        );
    }
    check_with(&mount("{name: v, path: /projects/deps}, {name: w, path: /workspace-gateways}"), &[]);
    check_with(
        &mount("{name: v}, {name: w, path: /v}"),
        &["line 7, components[0].container.volumeMounts[1].path: \"/v\" has a volume already, on line 7"],
    );
    let (longest, longer) = ("v".repeat(27), "v".repeat(28));
    check_with(&format!("- {{name: {longest}, volume: {{}}}}\n"), &[]);
    check_with(
        &format!("- {{name: {longer}, volume: {{}}}}\n"),
        &["line 7, components[1].name: a volume's name has at most 27 characters"],
    );
    check_with(
        "- {name: v, volume: {size: big, ephemeral: 1}}\n",
        &[
            "line 7, components[1].volume.size: is not a Kubernetes quantity such as 500m, 2, 512Mi or 1.5Gi; it is \
             \"big\"",
            "line 7, components[1].volume.ephemeral: must be true or false, not a number",
        ],
    );
    check_with("- {name: v, volume: {size: '0'}}\n", &["line 7, components[1].volume.size: must be at least one byte"]);
}
