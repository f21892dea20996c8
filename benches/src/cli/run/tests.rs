use clap::Parser;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    run: RunArgs,
}

fn lab(line: &str) -> LabSpec {
    let run = Line::try_parse_from(line.split(' ')).unwrap_or_else(|error| panic!("{line}: {error}")).run;
    run.lab(&run.load()).unwrap()
}

#[test]
fn tls_is_for_users_and_link_unless_one_is_named() {
    for (option, users, link) in
        [("", false, false), (" --tls", true, true), (" --tls=link", false, true), (" --tls=users", true, false)]
    {
        let spec = lab(&format!("run http --self{option}"));
        assert_eq!((spec.users_tls, spec.link_tls), (users, link), "{option}");
    }
}

#[test]
fn lab_of_an_idle_run_is_what_the_profile_needs() {
    let spec = lab("run idle --self --set websockets=5000 --config GATEWAY_TUNNEL__SESSION_BUDGET=1");
    let value = |key: &str| spec.config.get(key).map(String::as_str);
    assert_eq!(spec.workspaces, 1);
    assert_eq!(value("GATEWAY_TUNNEL__CHANNELS_PER_SESSION"), Some("5020"));
    assert_eq!(value("GATEWAY_TUNNEL__SESSION_BUDGET"), Some("1"), "what was told is not overruled");
    assert_eq!(lab("run idle --self --set agents=7").workspaces, 8);
    assert_eq!(lab("run storm --self").workspaces, STORM_AGENTS + 1);
    assert_eq!(lab("run http --self").workspaces, 1);
}
