use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::*;
use crate::testing::{config, workspace};
use gateway_types::{ActualState, DesiredState, Lifecycle};

const GOOD: &str =
    "workspaces:\n  enabled: true\n  tools_image: registry.test/tools:1\n  max_active_hours_before_stop: 12\n";

/// A folder, a store, and what is remembered between looks.
struct Stage {
    folder: tempfile::TempDir,
    store: Store,
    configs: Arc<ClusterConfigs>,
    seen: ConfigScan,
    /// File systems may not tell two writes within one tick apart.
    writes: u64,
}

impl Stage {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let configs = ClusterConfigs::new(Some(folder.path().to_owned()));
        let store = Store::open("sqlite::memory:").await.unwrap();
        Self { folder, store, configs, seen: ConfigScan::default(), writes: 0 }
    }

    fn path(&self, cluster: &str) -> PathBuf {
        self.folder.path().join(cluster).join("config.yaml")
    }

    fn write(&mut self, cluster: &str, text: &str) {
        let path = self.path(cluster);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        self.writes += 1;
        let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + self.writes);
        fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    }

    async fn look(&mut self) {
        self.configs.look(&self.store, &mut self.seen).await.unwrap();
    }

    async fn version(&self, cluster: &str) -> Option<(i64, ClusterConfig)> {
        let cluster = self.store.cluster(&cluster.parse().unwrap()).await.unwrap()?;
        let (version, text) = self.store.cluster_config(cluster.id, None).await.unwrap()?;
        Some((version.get(), ClusterConfig::from_json(&text).unwrap()))
    }

    fn told(&self) -> u64 {
        *self.configs.changes.borrow()
    }
}

#[tokio::test]
async fn file_is_taken_over_when_it_changes_and_only_if_it_means_something_else() {
    let mut stage = Stage::new().await;
    stage.write("prod", GOOD);
    stage.look().await;
    let (version, first) = stage.version("prod").await.unwrap();
    assert_eq!((version, first.max_active_hours, stage.told()), (1, 12, 1));
    stage.look().await;
    stage.write("prod", &format!("# a comment\n{GOOD}"));
    stage.look().await;
    assert_eq!((stage.version("prod").await.unwrap().0, stage.told()), (1, 1));
    stage.write("prod", &GOOD.replace("12", "24"));
    stage.look().await;
    let (version, second) = stage.version("prod").await.unwrap();
    assert_eq!((version, second.max_active_hours, stage.told()), (2, 24, 2));
}

#[tokio::test]
async fn file_with_a_mistake_changes_nothing_and_says_why_until_it_is_mended() {
    let mut stage = Stage::new().await;
    stage.write("prod", GOOD);
    stage.write("other", GOOD);
    stage.look().await;
    stage.write("prod", "workspaces:\n  enabled: perhaps\n  max_active_hours_before_stop: 0\n");
    stage.write("other", &GOOD.replace("12", "13"));
    stage.look().await;
    assert_eq!(stage.version("prod").await.unwrap().1.max_active_hours, 12);
    assert_eq!(stage.version("other").await.unwrap().1.max_active_hours, 13, "others are taken over");
    let refusal = stage.configs.refusal(&"prod".parse().unwrap()).unwrap();
    assert!(refusal.problems.len() >= 2, "{refusal}");
    assert!(refusal.to_string().contains("config.yaml:2"), "{refusal}");
    assert_eq!(check(stage.folder.path()), [refusal.as_ref().clone()], "the command says the same");
    stage.write("prod", GOOD);
    stage.look().await;
    assert!(stage.configs.refusals().is_empty() && check(stage.folder.path()).is_empty());
}

#[tokio::test]
async fn file_that_is_gone_changes_nothing() {
    let mut stage = Stage::new().await;
    stage.write("prod", GOOD);
    stage.write("bad", "- 1\n");
    stage.look().await;
    assert_eq!(stage.configs.refusals().len(), 1);
    fs::remove_dir_all(stage.path("prod").parent().unwrap()).unwrap();
    fs::remove_file(stage.path("bad")).unwrap();
    stage.look().await;
    assert_eq!(stage.version("prod").await.unwrap().1.max_active_hours, 12);
    assert!(stage.configs.refusals().is_empty());
    stage.write("prod", &GOOD.replace("12", "14"));
    stage.look().await;
    assert_eq!(stage.version("prod").await.unwrap().1.max_active_hours, 14);
}

#[tokio::test]
async fn cluster_without_a_file_gets_the_defaults_and_keeps_what_it_has() {
    let mut stage = Stage::new().await;
    stage.store.ensure_cluster(&"bare".parse().unwrap(), wall_clock()).await.unwrap();
    stage.look().await;
    assert_eq!(stage.version("bare").await.unwrap(), (1, ClusterConfig::default()));
    let cluster = stage.store.cluster(&"bare".parse().unwrap()).await.unwrap().unwrap();
    stage.store.put_cluster_config(cluster.id, &config().to_json(), wall_clock()).await.unwrap();
    stage.look().await;
    assert_eq!(stage.version("bare").await.unwrap(), (2, config()));
}

#[tokio::test]
async fn folder_whose_name_is_no_clusters_and_a_folder_that_is_not_there_are_told() {
    let mut stage = Stage::new().await;
    stage.write("NOT_A_NAME", GOOD);
    fs::write(stage.folder.path().join("stray.yaml"), "x").unwrap();
    stage.look().await;
    let told = stage.configs.refusals();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].to_string().contains("NOT_A_NAME"), "{}", told[0]);
    let missing = check(Path::new("/no/such/folder"));
    assert!(missing[0].to_string().starts_with("/no/such/folder: the folder cannot be read"), "{}", missing[0]);
}

impl Stage {
    async fn shared_namespace(&self) -> Option<String> {
        self.version("prod").await.unwrap().1.shared_namespace
    }

    fn code(&self) -> Option<&'static str> {
        self.configs.refusal(&"prod".parse().unwrap()).map(|refusal| refusal.code.as_str())
    }

    /// Writes what a workspace is to be and is.
    async fn bring(&self, id: gateway_store::WorkspaceId, desired: DesiredState, actual: ActualState) {
        let found = self.store.managed_by_id(id).await.unwrap().unwrap().lifecycle;
        let revision = found.revision;
        assert!(self.store.swap_lifecycle(id, revision, &Lifecycle { desired, actual, ..found }).await.unwrap());
    }
}

#[tokio::test]
async fn namespace_mode_is_not_switched_while_workspaces_live_and_is_once_they_are_over() {
    let mut stage = Stage::new().await;
    let shared = |name: &str| format!("{GOOD}  shared_namespace: {name}\n");
    let made = workspace(&stage.store, "prod", "one", wall_clock()).await;
    let told = stage.told();
    stage.write("prod", &shared("dev"));
    stage.look().await;
    assert_eq!((stage.code(), stage.shared_namespace().await), (Some("namespace_mode_in_use"), None));
    let refusal = stage.configs.refusals().remove(0);
    assert!(refusal.to_string().contains("workspaces.shared_namespace: cannot be changed"), "{refusal}");
    assert!(refusal.to_string().contains("each in a namespace of its own"), "{refusal}");
    assert_eq!(stage.told(), told, "the agent is told nothing");
    // Nothing new: it is the same refusal, and is not told again.
    stage.look().await;
    assert!(Arc::ptr_eq(&refusal, &stage.configs.refusals()[0]));
    // Whatever else changes is taken over.
    stage.write("prod", &GOOD.replace("12", "13"));
    stage.look().await;
    assert_eq!((stage.code(), stage.version("prod").await.unwrap().1.max_active_hours), (None, 13));
    stage.write("prod", &shared("dev"));
    stage.look().await;
    stage.bring(made.workspace.id, DesiredState::Terminated, ActualState::Terminating).await;
    stage.look().await;
    assert_eq!(stage.code(), Some("namespace_mode_in_use"), "something is left of it");
    stage.bring(made.workspace.id, DesiredState::Terminated, ActualState::Terminated).await;
    stage.look().await;
    assert_eq!(
        (stage.code(), stage.shared_namespace().await.as_deref()),
        (None, Some("dev")),
        "without another change"
    );
}

#[tokio::test]
async fn shared_namespace_in_use_is_neither_changed_nor_unset_and_a_file_that_waits_can_be_taken_back() {
    let mut stage = Stage::new().await;
    workspace(&stage.store, "prod", "one", wall_clock()).await;
    let cluster = stage.store.cluster(&"prod".parse().unwrap()).await.unwrap().unwrap();
    let shared = ClusterConfig { shared_namespace: Some("dev".to_owned()), ..config() };
    stage.store.put_cluster_config(cluster.id, &shared.to_json(), wall_clock()).await.unwrap();
    for text in [GOOD.to_owned(), format!("{GOOD}  shared_namespace: other\n")] {
        stage.write("prod", &text);
        stage.look().await;
        assert_eq!(
            (stage.code(), stage.shared_namespace().await.as_deref()),
            (Some("namespace_mode_in_use"), Some("dev"))
        );
        assert!(stage.configs.refusals()[0].to_string().contains("in the namespace dev"));
    }
    fs::remove_file(stage.path("prod")).unwrap();
    stage.look().await;
    assert_eq!((stage.code(), stage.shared_namespace().await.as_deref()), (None, Some("dev")));
    stage.write("prod", &format!("{GOOD}  shared_namespace: dev\n"));
    stage.look().await;
    assert_eq!((stage.code(), stage.version("prod").await.unwrap().1.max_active_hours), (None, 12));
}
