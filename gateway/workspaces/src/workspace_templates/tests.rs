use std::fs;
use std::time::{Duration, SystemTime};

use super::*;
use crate::agents_dir::templates::TEMPLATES_MAX;

const GOOD: &str = "title: Good\ndevfile:\n  schemaVersion: 2.2.0\n  components:\n  - {name: main, attributes: {gateway/inject-editor: true}, \
    container: {image: a}}\n";

/// A folder, and what is known of it.
struct Stage {
    folder: tempfile::TempDir,
    templates: Arc<WorkspaceTemplates>,
    /// File systems may not tell two writes within one tick apart.
    writes: u64,
}

impl Stage {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let templates = WorkspaceTemplates::new(Some(folder.path().to_owned()));
        Self { folder, templates, writes: 0 }
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join("prod/workspace_templates").join(file)
    }

    fn write(&mut self, file: &str, text: &str) {
        let path = self.path(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        self.writes += 1;
        let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + self.writes);
        fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    }

    /// Returns the title of a template, or why there is none.
    fn get(&self, name: &str) -> Result<String, NoTemplate> {
        self.templates
            .get(&prod(), &name.parse().unwrap())
            .map(|template| template.title().unwrap_or_default().to_owned())
    }

    /// Returns the names that are listed, and of which the file is wrong.
    fn listed(&self) -> Vec<(String, bool)> {
        self.templates.list(&prod()).into_iter().map(|listed| (listed.name, listed.template.is_ok())).collect()
    }
}

fn prod() -> ClusterName {
    "prod".parse().unwrap()
}

fn good(title: &str) -> String {
    GOOD.replace("Good", title)
}

#[tokio::test]
async fn files_are_templates_as_they_are_now() {
    let mut stage = Stage::new();
    stage.templates.look().await;
    assert_eq!((stage.get("node"), stage.listed()), (Err(NoTemplate::NotFound), Vec::new()));
    stage.write("node.yaml", GOOD);
    stage.write("java.yaml", &good("Java"));
    stage.write(".node.yaml.swp", "x");
    stage.write("notes.txt", "x");
    stage.templates.look().await;
    assert_eq!((stage.get("node").as_deref(), stage.get("go")), (Ok("Good"), Err(NoTemplate::NotFound)));
    assert_eq!(
        stage.templates.get(&"other".parse().unwrap(), &"node".parse().unwrap()).unwrap_err(),
        NoTemplate::NotFound
    );
    assert_eq!(stage.get("java").as_deref(), Ok("Java"));
    fs::remove_file(stage.path("java.yaml")).unwrap();
    stage.write("node.yaml", &good("Other"));
    stage.templates.look().await;
    assert_eq!((stage.get("node").as_deref(), stage.get("java")), (Ok("Other"), Err(NoTemplate::NotFound)));
    fs::remove_file(stage.path("node.yaml")).unwrap();
    stage.templates.look().await;
    assert_eq!((stage.get("node"), stage.listed()), (Err(NoTemplate::NotFound), Vec::new()));
    // The same file again, as an editor may bring it back.
    stage.writes -= 1;
    stage.write("node.yaml", &good("Other"));
    stage.templates.look().await;
    assert_eq!(stage.get("node").as_deref(), Ok("Other"));
    fs::remove_dir_all(stage.folder.path().join("prod")).unwrap();
    stage.templates.look().await;
    assert_eq!(stage.get("node").as_deref(), Ok("Other"), "the whole folder cannot have been meant");
}

#[tokio::test]
async fn file_with_a_mistake_cannot_be_used_until_it_is_corrected() {
    let mut stage = Stage::new();
    stage.write("node.yaml", GOOD);
    stage.templates.look().await;
    stage.write("node.yaml", &format!("{GOOD}more: 1\n"));
    stage.write("Upper.yaml", GOOD);
    stage.write("go.yml", GOOD);
    stage.templates.look().await;
    let Err(NoTemplate::Broken(problems)) = stage.get("node") else { panic!("{:?}", stage.get("node")) };
    assert!(problems[0].message.starts_with("unknown key"), "{problems:?}");
    assert!(matches!(stage.get("upper"), Err(NoTemplate::Broken(_))), "it was meant");
    assert!(matches!(stage.get("go"), Err(NoTemplate::Broken(_))));
    let listed =
        [("Upper.yaml", false), ("go.yml", false), ("node", false)].map(|(name, is_good)| (name.to_owned(), is_good));
    assert_eq!(stage.listed(), listed);
    assert_eq!(check(stage.folder.path()).len(), 3);
    stage.write("node.yaml", GOOD);
    stage.write("go.yaml", GOOD);
    stage.templates.look().await;
    assert_eq!((stage.get("node").as_deref(), stage.get("go").as_deref()), (Ok("Good"), Ok("Good")));
}

#[tokio::test]
async fn folder_and_files_are_bounded() {
    let mut stage = Stage::new();
    stage.write("large.yaml", &format!("title: {}\n", "x".repeat(TEMPLATE_BYTES_MAX)));
    stage.templates.look().await;
    let Err(NoTemplate::Broken(problems)) = stage.get("large") else { panic!("it is too large") };
    assert_eq!(problems[0].message, "the file is larger than 256 KiB");
    for number in 0..=TEMPLATES_MAX {
        stage.write(&format!("t{number}.yaml"), GOOD);
    }
    stage.templates.look().await;
    let Err(NoTemplate::Broken(problems)) = stage.get("t1") else { panic!("the folder is too large") };
    assert_eq!(problems[0].message, "the folder has more than 200 templates");
    assert_eq!(stage.listed().last(), Some(&("workspace_templates".to_owned(), false)));
    for number in 0..=1 {
        fs::remove_file(stage.path(&format!("t{number}.yaml"))).unwrap();
    }
    stage.templates.look().await;
    assert_eq!(stage.get("t2").as_deref(), Ok("Good"));
    assert_eq!(stage.listed().len(), TEMPLATES_MAX);
}
