use super::*;
use gateway_config::{CiEditor, CiProvider, CommandCi, Config};
use gateway_store::{NewCi, NewCiRun, Quotas};

fn provider(name: &str) -> CiProvider {
    let hour = std::time::Duration::from_secs(3600);
    CiProvider {
        name: name.parse().unwrap(),
        system: CiSystemOf::Command(CommandCi {
            program: vec!["true".to_owned()],
            dir: "/none".into(),
            environment: Vec::new(),
            isolates_jobs: false,
            supervisor: None,
        }),
        tags: Vec::new(),
        allowed_tags: Vec::new(),
        job_timeout: hour,
        save_max: hour,
        inherit_variables: Vec::new(),
        editor: CiEditor::None,
        quota: None,
        quota_per_user: None,
        active_max: hour,
        stopped_max: hour,
        idle_minutes: 0,
        max_idle_minutes: 0,
        age_max: hour,
    }
}

#[tokio::test]
async fn agent_of_a_workspace_whose_ci_system_is_turned_off_or_taken_out_is_told_that_its_run_is_over() {
    let store = Store::open("sqlite::memory:").await.unwrap();
    let (name, owner, of) = ("app".parse().unwrap(), "ann".parse().unwrap(), "local".parse().unwrap());
    let new = NewCi {
        name: &name,
        owner: &owner,
        provider: &of,
        cache_key: "k",
        project: None,
        tags: &[],
        devfile: "",
        variables: &[],
        ports: &[],
        quotas: Quotas::default(),
    };
    let made = store.create_ci(&new, wall_clock()).await.unwrap();
    let (life, run) = (&made.lifecycle, NewCiRun { key: "r1", token: None });
    assert!(store.begin_run(made.workspace.id, life.revision, life, &run, wall_clock()).await.unwrap().is_some());
    let subject = Subject::Workspace(name);
    for (is_enabled, providers, expected) in [
        (true, vec!["local"], Ok(())),
        (true, vec!["local", "other"], Ok(())),
        (true, vec!["other"], Err(CredentialRefusal::RunOver)),
        (true, vec![], Err(CredentialRefusal::RunOver)),
        (false, vec!["local"], Err(CredentialRefusal::RunOver)),
    ] {
        let ci = Ci { enabled: is_enabled, providers: providers.into_iter().map(provider).collect(), ..Ci::default() };
        let identities =
            AgentIdentities::new(store.clone(), &Config::default().auth.agents).unwrap().with_runs(&ci).unwrap();
        assert_eq!(identities.may_run(&subject).await, expected, "{is_enabled} {:?}", ci.providers);
    }
}
