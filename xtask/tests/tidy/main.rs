//! The house rules that a program can check, as ordinary tests.
//!
//! ARCHITECTURE.md has the table of crates, `xtask/pure.txt` the files without I/O, `docs/defences.md` the tests of each
//! defence. These tests compare them with the code, so neither can change without the other. Each check is itself tested
//! with small bad inputs, beside the check.

#![expect(clippy::expect_used, reason = "a checker that cannot read what it checks has to fail loudly")]

mod crates;
mod defences;
mod habits;
mod lex;
mod modules;
mod paths;
mod pure;
mod records;
mod repository;
mod source;
mod table;
mod text;
mod words;

use std::io::Write as _;

use repository::Repository;

/// Fails with every problem at once.
#[track_caller]
fn assert_none(problems: &[String]) {
    assert!(problems.is_empty(), "{} found:\n  {}", problems.len(), problems.join("\n  "));
}

/// Writes around the test harness, which keeps what a passing test prints to itself.
fn report(line: &str) {
    // A report without a reader is no reason to fail.
    writeln!(std::io::stderr().lock(), "tidy: {line}").unwrap_or_default();
}

#[test]
fn crates_use_exactly_the_crates_of_the_table() {
    let repository = Repository::open();
    let table = crates::Table::parse(&repository.architecture()).expect("the table of crates");
    assert_none(&crates::check(&table, &crates::workspace(repository::root()).expect("cargo metadata")));
}

#[test]
fn crates_of_the_product_are_small_and_their_longest_chain_is_short() {
    let crates = crates::workspace(repository::root()).expect("cargo metadata");
    let sizes = crates::Sizes::count(&crates, &Repository::open());
    report(&sizes.to_string());
    assert_none(&sizes.problems());
}

#[test]
fn pure_files_touch_no_socket_clock_file_or_chance() {
    let repository = Repository::open();
    assert_none(&pure::check_files(&repository.read(pure::PATH), &repository));
}

#[test]
fn pure_crates_depend_on_nothing_with_sockets_clock_or_chance() {
    for package in ["tunnel-proto", "gateway-types", "workspace-spec"] {
        let tree = pure::dependency_tree(repository::root(), package).expect("cargo tree");
        assert!(tree.contains("bytes v"), "not a dependency tree: {tree}");
        assert_none(&pure::check_tree(package, &tree));
    }
}

#[test]
fn every_source_file_is_compiled() {
    let repository = Repository::open();
    assert_none(&modules::dead_files(&repository));
}

#[test]
fn files_are_short() {
    let repository = Repository::open();
    let (long, too_long) = text::lengths(&repository);
    for line in long {
        report(&line);
    }
    assert_none(&too_long);
}

#[test]
fn no_marker_of_unfinished_work_is_left() {
    let repository = Repository::open();
    let mut problems = repository.check_texts(text::markers);
    problems.extend(repository.check_sources(source::unfinished));
    assert_none(&problems);
}

#[test]
fn every_lint_exception_has_a_reason() {
    assert_none(&Repository::open().check_sources(source::exceptions_without_reason));
}

#[test]
fn no_file_names_a_package_host_or_a_place_on_one_machine() {
    let repository = Repository::open();
    let root = repository::root().display().to_string();
    assert_none(&repository.check_texts(|path, text| text::places(path, text, &root)));
}

#[test]
fn comments_begin_with_a_noun_or_a_verb_and_name_their_party() {
    assert_none(&words::check(&Repository::open()));
}

#[test]
fn documents_name_their_party() {
    assert_none(&words::check_documents(&Repository::open()));
}

#[test]
fn crates_begin_with_a_map_of_their_modules() {
    assert_none(&words::check_maps(&Repository::open()));
}

#[test]
fn decision_records_are_dated_and_complete() {
    let repository = Repository::open();
    assert_none(&records::check(&repository));
}

#[test]
fn every_defence_has_tests_that_exist_or_says_why_not() {
    let repository = Repository::open();
    assert_none(&defences::check(&repository.read(defences::PATH), &repository));
}

#[test]
fn programs_have_no_queue_without_a_bound_and_no_small_copies() {
    assert_none(&habits::check_sources(&Repository::open()));
}

#[test]
fn functions_take_no_tuples_apart() {
    assert_none(&habits::check_parameters(&Repository::open()));
}

#[test]
fn programs_unwind_when_a_task_panics() {
    assert_none(&habits::check_panics(&Repository::open().read("Cargo.toml")));
}

#[test]
fn libraries_that_had_holes_are_newer_than_the_fixes() {
    assert_none(&habits::check_versions(&Repository::open().read("Cargo.lock")));
}

#[test]
fn documents_name_only_files_that_exist() {
    let repository = Repository::open();
    for document in ["ARCHITECTURE.md", "README.md"] {
        let named = text::named_files(&repository.read(document));
        assert!(!named.is_empty(), "{document} names no file");
        let missing = named.into_iter().filter(|path| !repository.has(path));
        assert_none(&missing.map(|path| format!("{document}: {path} does not exist")).collect::<Vec<_>>());
    }
}
