use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use super::*;

const GOOD: &str = "objects: []\n";

/// Keeps templates in memory, and nothing at all while it is away.
#[derive(Debug, Default)]
struct Kept {
    templates: Mutex<BTreeMap<(ClusterName, TemplateName), String>>,
    is_away: Mutex<bool>,
}

impl Kept {
    fn away<T>(&self, value: T) -> Result<T, StoreError> {
        if *self.is_away.lock() { Err(StoreError::Corrupt { table: "none", column: "none" }) } else { Ok(value) }
    }

    fn texts(&self) -> Vec<String> {
        self.templates.lock().iter().map(|((cluster, name), text)| format!("{cluster}/{name}: {text}")).collect()
    }
}

impl KeepTemplates for Kept {
    async fn templates(&self) -> Result<Vec<KeptTemplate>, StoreError> {
        let one = |((cluster, name), text): (&(ClusterName, TemplateName), &String)| KeptTemplate {
            cluster: cluster.clone(),
            name: name.clone(),
            text: text.clone(),
        };
        self.away(self.templates.lock().iter().map(one).collect())
    }

    async fn put_template(&self, template: &KeptTemplate) -> Result<(), StoreError> {
        self.away(())?;
        self.templates.lock().insert((template.cluster.clone(), template.name.clone()), template.text.clone());
        Ok(())
    }

    async fn remove_template(&self, cluster: &ClusterName, name: &TemplateName) -> Result<(), StoreError> {
        self.away(())?;
        self.templates.lock().remove(&(cluster.clone(), name.clone()));
        Ok(())
    }
}

struct Stage {
    folder: tempfile::TempDir,
    kept: Kept,
    files: Arc<TemplateFiles>,
    seen: TemplateScan,
    writes: u64,
}

impl Stage {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let files = TemplateFiles::new(Some(folder.path().to_owned()));
        Self { folder, kept: Kept::default(), files, seen: TemplateScan::default(), writes: 0 }
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join("prod/environment_templates").join(file)
    }

    fn write(&mut self, file: &str, text: &str) {
        let path = self.path(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        self.writes += 1;
        let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + self.writes);
        fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    }

    async fn look(&mut self) {
        self.files.look(&self.kept, &mut self.seen).await.unwrap();
    }

    /// Starts again with what is kept.
    async fn restart(&mut self) {
        self.files = TemplateFiles::new(Some(self.folder.path().to_owned()));
        self.seen = TemplateScan::default();
        self.files.begin(&self.kept).await.unwrap();
    }

    fn get(&self, name: &str) -> Result<String, NoTemplate> {
        self.files.get(&prod(), &name.parse().unwrap()).map(|template| template.text().to_owned())
    }

    /// Returns what is refused, of any cluster.
    fn refusals(&self) -> Vec<Arc<FileRefusal>> {
        self.files.refusals.read().values().map(|refused| refused.refusal.clone()).collect()
    }

    /// Returns why there is no template of that name.
    fn why_not(&self, name: &str) -> String {
        match self.get(name) {
            Err(NoTemplate::Invalid(problems)) => problems.iter().map(ToString::to_string).collect(),
            other => panic!("{other:?}"),
        }
    }
}

fn prod() -> ClusterName {
    "prod".parse().unwrap()
}

fn built_in() -> String {
    Template::built_in().text().to_owned()
}

#[tokio::test]
async fn files_are_in_force_when_they_change_and_default_overrides_the_built_in_one() {
    let mut stage = Stage::new();
    stage.look().await;
    assert_eq!((stage.get("default"), stage.get("web")), (Ok(built_in()), Err(NoTemplate::NotFound)));
    stage.write("default.yaml", GOOD);
    stage.write("web.yaml", "objects: [] # 1\n");
    stage.look().await;
    assert_eq!((stage.get("default").as_deref(), stage.get("web").as_deref()), (Ok(GOOD), Ok("objects: [] # 1\n")));
    assert_eq!(stage.files.names(&prod()).iter().map(ToString::to_string).collect::<Vec<_>>(), ["default", "web"]);
    stage.write("web.yaml", "objects: [] # 2\n");
    stage.look().await;
    assert_eq!(stage.get("web").as_deref(), Ok("objects: [] # 2\n"));
    let other = stage.files.get(&"other".parse().unwrap(), &TemplateName::default_one()).unwrap();
    assert_eq!(other.text(), built_in(), "another agent's templates are its own");
    assert_eq!(stage.kept.texts(), ["prod/default: objects: []\n", "prod/web: objects: [] # 2\n"]);
}

#[tokio::test]
async fn file_with_a_mistake_keeps_the_last_good_one_also_over_a_restart_and_says_why() {
    let mut stage = Stage::new();
    stage.write("web.yaml", GOOD);
    stage.look().await;
    stage.write("web.yaml", "objects: [{{ .no.such }}]\nmore: 1\n");
    stage.write("new.yaml", "objects: 1\n");
    for _ in 0..2 {
        stage.look().await;
        assert_eq!(stage.get("web").as_deref(), Ok(GOOD));
        assert!(matches!(stage.get("new"), Err(NoTemplate::Invalid(problems)) if problems.len() == 1));
        let told = stage.refusals();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[1].to_string().contains("web.yaml:1:11: unknown variable \".no.such\""), "{}", told[1]);
        assert!(told[1].to_string().contains("web.yaml:2:1: more: unknown key"), "{}", told[1]);
        let checked: Vec<_> = check(stage.folder.path()).into_iter().map(Arc::new).collect();
        assert_eq!(checked, told, "the command says the same");
        stage.restart().await;
    }
    stage.write("web.yaml", "objects: [] # mended\n");
    fs::remove_file(stage.path("new.yaml")).unwrap();
    stage.look().await;
    assert_eq!(stage.get("web").as_deref(), Ok("objects: [] # mended\n"));
    assert!(stage.refusals().is_empty() && check(stage.folder.path()).is_empty());
}

#[tokio::test]
async fn bad_default_is_never_answered_with_the_built_in_one() {
    let mut stage = Stage::new();
    stage.write("default.yaml", "objects: 1\n");
    stage.look().await;
    assert!(matches!(stage.get("default"), Err(NoTemplate::Invalid(_))));
}

#[tokio::test]
async fn file_whose_name_is_nearly_a_templates_is_never_answered_with_another_template() {
    for file in ["default.yml", "Default.yaml", "DEFAULT.YAML"] {
        let mut stage = Stage::new();
        stage.write(file, GOOD);
        stage.look().await;
        let why = stage.why_not("default");
        assert!(why.contains(&format!("environment_templates/{file}: the file's name")), "{why}");
        // What was in force before somebody gave it that name stays, and so it does for as long as the file is there.
        stage.write("default.yaml", "objects: [] # before\n");
        stage.look().await;
        fs::remove_file(stage.path("default.yaml")).unwrap();
        for _ in 0..3 {
            stage.look().await;
            assert_eq!(stage.get("default").as_deref(), Ok("objects: [] # before\n"), "{file}");
        }
        fs::remove_file(stage.path(file)).unwrap();
        stage.look().await;
        stage.look().await;
        assert_eq!(stage.get("default"), Ok(built_in()), "there is no file any more");
    }
}

#[tokio::test]
async fn folder_that_cannot_be_read_is_never_answered_with_the_built_in_template() {
    let mut stage = Stage::new();
    let folder = stage.folder.path().join("prod/environment_templates");
    fs::create_dir_all(stage.folder.path().join("prod")).unwrap();
    fs::write(&folder, "a file where a folder should be").unwrap();
    stage.look().await;
    for name in ["default", "web"] {
        let why = stage.why_not(name);
        assert!(why.starts_with("environment_templates: the folder cannot be read"), "{name}: {why}");
    }
    let other = stage.files.get(&"other".parse().unwrap(), &TemplateName::default_one()).unwrap();
    assert_eq!(other.text(), built_in(), "another agent's folder is its own");
    fs::remove_file(&folder).unwrap();
    stage.write("web.yaml", GOOD);
    stage.look().await;
    assert_eq!((stage.get("default"), stage.get("web").as_deref()), (Ok(built_in()), Ok(GOOD)));
}

#[tokio::test]
async fn refused_file_is_told_beside_what_is_in_force_in_its_place() {
    let mut stage = Stage::new();
    stage.write("web.yaml", GOOD);
    stage.look().await;
    assert!(stage.files.refused(&prod()).is_empty() && !stage.files.has_refused(&prod()));
    stage.write("web.yaml", "objects: []\nmore: 1\n");
    stage.write("a.b.yaml", GOOD);
    stage.look().await;
    assert_eq!(stage.get("web").as_deref(), Ok(GOOD));
    let web: TemplateName = "web".parse().unwrap();
    let told = stage.files.problems(&prod(), &web);
    assert_eq!((told.len(), told[0].line, told[0].column), (1, Some(2), Some(1)));
    assert_eq!(told[0].path, "environment_templates/web.yaml: more");
    let refused = stage.files.refused(&prod());
    let files: Vec<_> = refused.iter().map(|one| (one.file.as_str(), one.template.clone())).collect();
    assert_eq!(files, [("environment_templates/a.b.yaml", None), ("environment_templates/web.yaml", Some(web))]);
    let other = "other".parse().unwrap();
    assert!(stage.files.has_refused(&prod()) && !stage.files.has_refused(&other), "each agent's files are its own");
    assert!(stage.files.problems(&prod(), &TemplateName::default_one()).is_empty(), "nor is it another template's");
}

#[tokio::test]
async fn file_that_is_gone_is_a_template_that_is_gone_at_the_second_look() {
    let mut stage = Stage::new();
    stage.write("default.yaml", GOOD);
    stage.write("web.yaml", GOOD);
    stage.look().await;
    fs::remove_file(stage.path("default.yaml")).unwrap();
    stage.look().await;
    assert_eq!(stage.get("default").as_deref(), Ok(GOOD), "an editor may be about to put it back");
    stage.look().await;
    assert_eq!(stage.get("default"), Ok(built_in()));
    assert_eq!(stage.kept.texts(), ["prod/web: objects: []\n"]);
    // Put back in between, it counts from the beginning.
    fs::remove_file(stage.path("web.yaml")).unwrap();
    stage.look().await;
    stage.write("web.yaml", GOOD);
    stage.look().await;
    fs::remove_file(stage.path("web.yaml")).unwrap();
    stage.look().await;
    assert_eq!(stage.get("web").as_deref(), Ok(GOOD));
    fs::remove_dir(stage.path("web.yaml").parent().unwrap()).unwrap();
    stage.look().await;
    assert_eq!(stage.get("web"), Err(NoTemplate::NotFound), "a folder without files");
}

#[tokio::test]
async fn folder_of_an_agent_that_is_gone_changes_nothing() {
    let mut stage = Stage::new();
    stage.write("web.yaml", GOOD);
    stage.look().await;
    fs::remove_dir_all(stage.folder.path().join("prod")).unwrap();
    for _ in 0..3 {
        stage.look().await;
        assert_eq!(stage.get("web").as_deref(), Ok(GOOD));
    }
    stage.restart().await;
    assert_eq!(stage.get("web").as_deref(), Ok(GOOD));
}

#[tokio::test]
async fn template_is_not_in_force_before_it_is_kept() {
    let mut stage = Stage::new();
    stage.write("web.yaml", GOOD);
    *stage.kept.is_away.lock() = true;
    assert!(stage.files.look(&stage.kept, &mut stage.seen).await.is_err());
    assert_eq!(stage.get("web"), Err(NoTemplate::NotFound));
    *stage.kept.is_away.lock() = false;
    stage.look().await;
    assert_eq!(stage.get("web").as_deref(), Ok(GOOD), "it is tried again though nothing changed");
}

#[tokio::test]
async fn files_whose_names_are_no_templates_are_told_and_hidden_ones_are_not_looked_at() {
    let mut stage = Stage::new();
    for file in ["Web.yaml", "web.yml", ".hidden.yaml", "notes.txt", "a.b.yaml"] {
        stage.write(file, GOOD);
    }
    fs::create_dir_all(stage.folder.path().join("BAD_NAME/environment_templates")).unwrap();
    fs::write(stage.folder.path().join("BAD_NAME/environment_templates/x.yaml"), GOOD).unwrap();
    fs::create_dir_all(stage.folder.path().join("OTHER_BAD_NAME")).unwrap();
    stage.look().await;
    let told = stage.refusals();
    let files: Vec<_> = told.iter().map(|refusal| name_of(&refusal.path)).collect();
    assert_eq!(files, ["environment_templates", "Web.yaml", "a.b.yaml", "web.yml"]);
    assert!(told[3].to_string().contains("must end in .yaml"), "{}", told[3]);
    assert!(check(Path::new("/no/such/folder")).is_empty());
}

#[tokio::test]
async fn without_a_folder_there_is_the_built_in_template_only() {
    let files = TemplateFiles::new(None);
    files.begin(&Kept::default()).await.unwrap();
    assert!(files.get(&prod(), &TemplateName::default_one()).is_ok());
    assert_eq!(files.get(&prod(), &"web".parse().unwrap()).unwrap_err(), NoTemplate::NotFound);
}
