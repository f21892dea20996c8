//! Environments of CI jobs.

use super::*;

#[test]
fn no_job_may_ask_by_default() {
    assert_eq!(load("", &[]).unwrap().environments, Environments::default());
}

#[test]
fn issuer_lets_jobs_ask_and_the_audience_is_the_public_url() {
    let text = "public_url = 'https://gw.example'\nzone = 'ws.example'\n[environments]\nissuer = 'https://gitlab.example'\n\
         operators = 'ann, bob'\ncomplete_max = '2m'\nhook_token_file = '/t'\n";
    let read = load(text, &[]).unwrap().environments;
    let jobs = read.jobs.unwrap();
    assert_eq!((jobs.issuer.as_str(), &*jobs.audience), ("https://gitlab.example", "https://gw.example"));
    assert_eq!(read.operators, ["ann".parse().unwrap(), "bob".parse().unwrap()]);
    assert_eq!((read.complete_max, read.hook_token_file), (Duration::from_secs(120), Some(PathBuf::from("/t"))));
}

#[test]
fn keys_without_effect_and_bad_values_are_told_at_once() {
    let text = "[environments]\njwks_url = 'https://gitlab.example/jwks'\ncomplete_max = '2h'\n";
    insta::assert_snapshot!(problems(text, &[]).join("\n"), @r#"
    :2: environments.jwks_url = "https://gitlab.example/jwks": has no effect: environments.issuer is not set
    :3: environments.complete_max = "2h": must be from 1s to 1h
    "#);
}
