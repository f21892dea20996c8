//! Git servers.

use super::*;

#[test]
fn servers_have_defaults_and_perhaps_oauth() {
    let text = "[git.intern]\nhost = 'Git.Example.com:443'\n[git.forge]\nhost = 'forge.example:8443'\n\
        token_url = 'https://forge.example/oauth/token'\nclient_id = 'gateway'\nclient_secret_file = '/s'\n";
    let config = load(text, &[]).unwrap();
    let [forge, intern] = config.git.as_slice() else { panic!("{:?}", config.git) };
    assert_eq!((intern.host.as_str(), intern.plain_http, &intern.oauth), ("git.example.com", false, &None));
    let oauth = forge.oauth.as_ref().unwrap();
    assert_eq!((forge.host.as_str(), &*oauth.user, &*oauth.client_id), ("forge.example:8443", "oauth2", "gateway"));
    assert_eq!(load("", &[]).unwrap().git, []);
}

#[test]
fn all_problems_of_servers_are_told() {
    let text = "[git.one]\nhost = 'https://git.example.com'\n[git.two]\nhost = 'git.example.com'\nclient_id = 'x'\n\
        [git.three]\nhost = 'same.example'\n[git.tree]\nhost = 'same.example'\nca_file = '/c'\nhots = 'x'\n[git.Bad_Name]\nhost = 'b.example'\n";
    let told = problems(text, &[]).join("\n");
    for wrong in [
        "git.one.host",
        "git.two.token_url: is missing",
        "git.tree.host",
        "git.tree.ca_file",
        "git.tree.hots: unknown key",
        "git.Bad_Name.host",
    ] {
        assert!(told.contains(wrong), "{wrong}: {told}");
    }
}
