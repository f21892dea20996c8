use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use gateway_store::SecretText;
use gateway_types::{ActualState, UnixSeconds, Zone};
use workspace_spec::cluster_config;
use workspace_spec::devfile;
use workspace_spec::editor::Chosen;
use workspace_spec::frozen::{Facts, freeze};

const CONFIG: &[u8] = b"workspaces:\n  enabled: true\n  tools_image: registry.example/tools:1\n  max_resources_per_workspace:\n    limits: {cpu: '8', memory: 32Gi}\n    requests: {cpu: '4', memory: 16Gi}\n";

const DEVFILE: &[u8] = b"schemaVersion: 2.2.0
components:
  - name: main
    attributes: {gateway/inject-editor: true}
    container: {image: debian, cpuRequest: 100m, cpuLimit: '1', memoryRequest: 256Mi, memoryLimit: 1Gi}
commands:
  - id: hello
    exec: {component: main, commandLine: echo hello}
events: {postStart: [hello]}
";

/// A config with an object of every role.
fn frozen() -> FrozenConfig {
    let config = cluster_config::parse(CONFIG).expect("a good configuration");
    let devfile = devfile::parse(DEVFILE).expect("a good devfile");
    let zone: Zone = "ws.example".parse().expect("a zone");
    let facts = Facts {
        workspace: &"app".parse().expect("a name"),
        cluster: &"prod".parse().expect("a name"),
        namespace: "ws-app",
        owner: &"ann".parse().expect("a name"),
        zone: &zone,
        public_url: "https://gateway.example",
        agents_url: "https://agents.example",
        projects: &[],
        editor: Chosen::CodeServer,
    };
    let frozen = freeze(&devfile, &config, &facts).expect("a config");
    let roles: BTreeSet<Role> = frozen.objects().iter().map(|object| object.role).collect();
    assert_eq!(roles.len(), 11, "every role is there: {roles:?}");
    frozen
}

fn life(desired: DesiredState) -> Lifecycle {
    Lifecycle { desired, actual: ActualState::Running, generation: 3, ..Lifecycle::new(UnixSeconds::new(1)) }
}

fn variables() -> Vec<Variable> {
    let variable = |kind, name: &str, value: &str| Variable {
        kind,
        name: name.to_owned(),
        value: SecretText::new(value.to_owned()),
    };
    vec![variable(VariableKind::Env, "GREETING", "hello"), variable(VariableKind::File, "agent-token", "secret")]
}

fn roles_sent(cycle: Cycle, desired: DesiredState) -> Vec<Role> {
    let frozen = frozen();
    let sent: BTreeSet<String> = config_for(&frozen, cycle, &life(desired), &variables()).iter().map(name).collect();
    let roles = frozen.objects().iter().filter(|object| sent.contains(&name(&object.value)));
    roles.map(|object| object.role).collect()
}

#[test]
fn what_is_sent_is_the_table_of_the_design() {
    let core = [
        Role::CoreInventory,
        Role::Deployment,
        Role::Service,
        Role::Volume,
        Role::ServiceAccount,
        Role::NetworkPolicy,
        Role::Scripts,
    ];
    let secrets = [Role::SecretsInventory, Role::ResourceQuota, Role::EnvSecret, Role::FileSecret];
    for desired in [DesiredState::Running, DesiredState::Stopped, DesiredState::RestartRequested] {
        assert_eq!(roles_sent(Cycle::Partial, desired), core, "{desired}");
        assert_eq!(roles_sent(Cycle::Full, desired), [&core[..], &secrets[..]].concat(), "{desired}");
    }
    for cycle in [Cycle::Partial, Cycle::Full] {
        let alone = [Role::CoreInventory, Role::SecretsInventory];
        assert_eq!(roles_sent(cycle, DesiredState::Terminated), alone, "{cycle:?}");
    }
}

#[test]
fn first_message_of_a_workspace_has_its_secrets() {
    assert_eq!(Cycle::of(false, 0), Cycle::Full);
    assert_eq!(Cycle::of(false, 1), Cycle::Partial);
    assert_eq!(Cycle::of(true, 1), Cycle::Full);
}

#[test]
fn only_replicas_and_the_data_of_secrets_are_filled_in() {
    let frozen = frozen();
    for desired in [DesiredState::Running, DesiredState::Stopped, DesiredState::RestartRequested] {
        let sent = config_for(&frozen, Cycle::Full, &life(desired), &variables());
        for (object, mut sent) in frozen.objects().iter().zip(sent) {
            let mut stored = object.value.clone();
            match object.role {
                Role::Deployment => {
                    assert_eq!(sent["spec"]["replicas"], u32::from(desired == DesiredState::Running));
                    stored["spec"]["replicas"] = 7.into();
                    sent["spec"]["replicas"] = 7.into();
                }
                Role::EnvSecret => assert_eq!(sent["data"], serde_json::json!({"GREETING": "aGVsbG8="})),
                Role::FileSecret => assert_eq!(sent["data"], serde_json::json!({"agent-token": "c2VjcmV0"})),
                Role::CoreInventory
                | Role::Service
                | Role::Volume
                | Role::ServiceAccount
                | Role::NetworkPolicy
                | Role::Scripts
                | Role::SecretsInventory
                | Role::ResourceQuota => {}
            }
            if matches!(object.role, Role::EnvSecret | Role::FileSecret) {
                stored["data"] = Value::Null;
                sent["data"] = Value::Null;
            }
            assert_eq!(sent, stored, "{desired} {:?}", object.role);
        }
    }
}

#[test]
fn naive_partial_message_that_had_secrets_pruned_is_refused() {
    // What the reference once sent: the secrets inventory without the secrets that it owns.
    let frozen = frozen();
    let mut naive = config_for(&frozen, Cycle::Partial, &life(DesiredState::Running), &[]);
    naive.extend(
        frozen
            .objects()
            .iter()
            .filter(|object| object.role == Role::SecretsInventory)
            .map(|object| object.value.clone()),
    );
    let broken = check_law(&naive, &frozen, DesiredState::Running);
    assert!(
        matches!(&broken, Err(LawBroken::Incomplete { inventory, .. }) if inventory == "app-secrets-inventory"),
        "{broken:?}"
    );
}

#[test]
fn end_takes_both_inventories_and_nothing_else() {
    let frozen = frozen();
    let sent = config_for(&frozen, Cycle::Full, &life(DesiredState::Terminated), &[]);
    assert_eq!(check_law(&sent, &frozen, DesiredState::Terminated), Ok(()));
    let one = check_law(&sent[..1], &frozen, DesiredState::Terminated);
    assert_eq!(one, Err(LawBroken::Missing { inventory: "app-secrets-inventory".to_owned() }));
    let more = config_for(&frozen, Cycle::Partial, &life(DesiredState::Running), &[]);
    let more = check_law(&more, &frozen, DesiredState::Terminated);
    assert!(matches!(more, Err(LawBroken::NotAlone { .. })), "{more:?}");
    // An inventory alone is how everything in it is deleted: never for a workspace that is to live.
    let alone = check_law(&sent, &frozen, DesiredState::Stopped);
    assert!(matches!(alone, Err(LawBroken::Incomplete { .. })), "{alone:?}");
}

proptest! {
    #[test]
    fn whatever_is_sent_keeps_the_law_and_whatever_leaves_something_out_breaks_it(
        desired in 0_usize..4, full in any::<bool>(), left_out in 0_usize..11,
    ) {
        let frozen = frozen();
        let desired = DesiredState::ALL[desired];
        let cycle = if full { Cycle::Full } else { Cycle::Partial };
        let mut sent = config_for(&frozen, cycle, &life(desired), &variables());
        prop_assert_eq!(check_law(&sent, &frozen, desired), Ok(()));
        let gone = left_out % sent.len();
        sent.remove(gone);
        prop_assert!(check_law(&sent, &frozen, desired).is_err());
    }
}
