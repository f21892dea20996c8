//! Templates as people write them for the reference, with what becomes of them.

use std::fs;
use std::path::{Path, PathBuf};

use super::facts::TemplateVars;
use super::manifest::{Border, manifest};
use super::template::{RenderedTemplate, Template};
use crate::document::Problem;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/environments").join(name)
}

/// Returns each template of a folder with its path.
fn templates(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(folder(name)).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> = entries.filter(|path| path.extension().is_some_and(|ending| ending == "yaml")).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read(&path).unwrap())).collect()
}

fn template(path: &Path, bytes: &[u8]) -> Result<Template, Vec<Problem>> {
    Template::parse(&path.file_stem().unwrap().to_str().unwrap().parse().unwrap(), bytes)
}

/// Writes each problem with its place.
fn told(problems: &[Problem]) -> String {
    let number = |number: Option<u32>| number.map(|number| format!("{number}:")).unwrap_or_default();
    let line = |problem: &Problem| {
        format!("{}{} {}: {}\n", number(problem.line), number(problem.column), problem.path, problem.message)
    };
    problems.iter().map(line).collect()
}

fn facts(name: &str) -> TemplateVars {
    let info: TemplateVars = serde_json::from_slice(&fs::read(folder(name).join("facts.json")).unwrap()).unwrap();
    assert_eq!(info.validate(), Ok(()));
    info
}

/// Compares with what is recorded, or records it if `GATEWAY_RECORD_EXAMPLES` is set.
fn check_recorded(path: &Path, made: &str) {
    if std::env::var_os("GATEWAY_RECORD_EXAMPLES").is_some() {
        fs::write(path, made).unwrap();
    }
    let recorded = fs::read_to_string(path).unwrap_or_default();
    assert_eq!(made, recorded, "{}", path.display());
}

fn check_folder(name: &str) -> usize {
    let info = facts(name);
    let templates = templates(name);
    for (path, bytes) in &templates {
        let rendered = template(path, bytes).unwrap_or_else(|problems| panic!("{}: {problems:#?}", path.display()));
        let rendered = rendered.render(&info).unwrap_or_else(|problems| panic!("{}: {problems:#?}", path.display()));
        check_recorded(&path.with_extension("json"), &format!("{:#}\n", rendered.to_json()));
        let yaml = rendered.to_yaml();
        assert_eq!(RenderedTemplate::parse(&rendered.template, yaml.as_bytes()).as_ref(), Ok(&rendered), "{yaml}");
    }
    templates.len()
}

#[test]
fn templates_written_for_the_reference_give_what_is_recorded() {
    assert!(check_folder("examples") >= 16);
}

#[test]
fn templates_that_differ_from_the_reference_give_what_is_recorded() {
    assert!(check_folder("differences") >= 5);
}

#[test]
fn templates_that_are_refused_are_told_as_recorded() {
    let templates = templates("refused");
    assert!(templates.len() >= 10);
    for (path, bytes) in templates {
        let problems = template(&path, &bytes).expect_err(&path.display().to_string());
        check_recorded(&path.with_extension("txt"), &told(&problems));
    }
}

#[test]
fn objects_of_all_examples_may_be_applied() {
    let info = facts("examples");
    for (path, bytes) in templates("examples") {
        let rendered = template(&path, &bytes).unwrap().render(&info).unwrap();
        let made = manifest(&rendered, &info, Border::default());
        let made = made.unwrap_or_else(|refused| panic!("{}: {refused:#?}", path.display()));
        assert_eq!(made.objects.len(), rendered.objects.len());
        assert!(made.objects.iter().all(|object| object["metadata"]["labels"]["agent.gitlab.com/id-7"] == ""));
    }
}
