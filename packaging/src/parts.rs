//! The parts list of a program (a software bill of materials, CycloneDX 1.6): every library in it, with version, license and the sum of
//! its source, of what Cargo says.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::blob::Sum;
use crate::programs::{Target, cargo};
use crate::repository::{Repository, VERSION, run, written};

/// A library by name and version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Library {
    name: String,
    version: String,
}

impl Library {
    /// Returns its name in the list.
    fn reference(&self) -> String {
        format!("pkg:cargo/{}@{}", self.name, self.version)
    }
}

/// What Cargo knows of libraries.
#[derive(Debug, Default)]
struct Facts {
    licenses: BTreeMap<Library, String>,
    uses: BTreeMap<Library, BTreeSet<Library>>,
    /// SHA-256 of the archives that libraries of a registry come in.
    sums: BTreeMap<Library, String>,
}

/// A program that a parts list is for.
#[derive(Debug)]
pub(crate) struct Subject<'s> {
    pub(crate) package: &'s str,
    pub(crate) name: &'s str,
    pub(crate) sum: &'s Sum,
    pub(crate) target: Target,
}

/// Makes the list.
///
/// # Errors
/// What Cargo says, if it fails.
pub(crate) fn list(repository: &Repository, subject: &Subject<'_>) -> Result<String> {
    let mut tree = Command::new(cargo());
    tree.args(["tree", "--locked", "--package", subject.package, "--target", subject.target.triple]);
    tree.args(["--edges", "normal,no-proc-macro", "--prefix", "none", "--no-dedupe", "--format", "{p}"]);
    let inside = libraries(&run(tree.current_dir(&repository.root))?);
    let mut metadata = Command::new(cargo());
    metadata.args(["metadata", "--locked", "--format-version", "1", "--filter-platform", subject.target.triple]);
    let mut facts = facts(serde_json::from_str(&run(metadata.current_dir(&repository.root))?)?);
    let lock = fs::read_to_string(repository.root.join("Cargo.lock")).context("Cargo.lock")?;
    facts.sums = sums(&lock);
    let document = document_of(subject, &inside, &facts, &written(repository.time()?)?);
    Ok(format!("{document:#}\n"))
}

/// Reads `name v1.2.3 (more)` from each line.
fn libraries(text: &str) -> BTreeSet<Library> {
    let read = |line: &str| {
        let mut words = line.split(' ');
        let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
        Some(Library { name: name.to_owned(), version: version.to_owned() })
    };
    text.lines().filter_map(read).collect()
}

/// Answer of Cargo, as far as it is read.
#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Debug, Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: String,
    deps: Vec<Use>,
}

#[derive(Debug, Deserialize)]
struct Use {
    pkg: String,
    dep_kinds: Vec<Purpose>,
}

/// Purpose of a use: none for what is in the program, else `build` or `dev`.
#[derive(Debug, Deserialize)]
struct Purpose {
    kind: Option<String>,
}

fn facts(metadata: Metadata) -> Facts {
    let mut facts = Facts::default();
    let mut names = BTreeMap::new();
    for Package { id, name, version, license } in metadata.packages {
        let library = Library { name, version };
        if let Some(license) = license {
            // Before SPDX, a slash meant a choice.
            facts.licenses.insert(library.clone(), license.replace(" / ", " OR ").replace('/', " OR "));
        }
        names.insert(id, library);
    }
    for node in metadata.resolve.nodes {
        let used = node.deps.iter().filter(|used| used.dep_kinds.iter().any(|purpose| purpose.kind.is_none()));
        let used = used.filter_map(|used| names.get(&used.pkg).cloned()).collect();
        if let Some(library) = names.get(&node.id) {
            facts.uses.insert(library.clone(), used);
        }
    }
    facts
}

/// Reads the sums of Cargo.lock.
fn sums(lock: &str) -> BTreeMap<Library, String> {
    let package = |text: &str| {
        let value = |key: &str| {
            let mut lines = text.lines();
            let found = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"'));
            found.map(str::to_owned)
        };
        Some((Library { name: value("name")?, version: value("version")? }, value("checksum")?))
    };
    lock.split("[[package]]").filter_map(package).collect()
}

fn document_of(subject: &Subject<'_>, inside: &BTreeSet<Library>, facts: &Facts, created: &str) -> Value {
    let own = Library { name: subject.package.to_owned(), version: VERSION.to_owned() };
    let components = inside.iter().filter(|library| **library != own).map(|library| component(library, facts));
    let dependencies = inside.iter().map(|library| {
        let used = facts.uses.get(library).into_iter().flatten().filter(|used| inside.contains(used));
        json!({ "ref": library.reference(), "dependsOn": used.map(Library::reference).collect::<Vec<_>>() })
    });
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": created,
            "tools": { "components": [{ "type": "application", "name": "cargo xtask", "version": VERSION }] },
            "component": {
                "type": "application", "bom-ref": own.reference(), "name": subject.name, "version": VERSION,
                "hashes": [{ "alg": "SHA-256", "content": subject.sum.hex }],
                "properties": [{ "name": "target", "value": subject.target.triple }],
            },
        },
        "components": components.collect::<Vec<_>>(),
        "dependencies": dependencies.collect::<Vec<_>>(),
    })
}

fn component(library: &Library, facts: &Facts) -> Value {
    let mut component = Map::new();
    let mut put = |key: &str, value: Value| drop(component.insert(key.to_owned(), value));
    put("type", json!("library"));
    put("bom-ref", json!(library.reference()));
    put("name", json!(library.name));
    put("version", json!(library.version));
    if let Some(license) = facts.licenses.get(library) {
        put("licenses", json!([{ "expression": license }]));
    }
    // Ours come from no registry, so that no address leads to them.
    if let Some(sum) = facts.sums.get(library) {
        put("purl", json!(library.reference()));
        put("hashes", json!([{ "alg": "SHA-256", "content": sum }]));
    }
    Value::Object(component)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(name: &str, version: &str) -> Library {
        Library { name: name.to_owned(), version: version.to_owned() }
    }

    #[test]
    fn list_has_what_is_inside_with_license_sum_and_uses() {
        let inside = libraries(&format!("own v{VERSION} (/a/b)\nused v2.0.0\nused v2.0.0 (*)\n\n"));
        let document = json!({
            "packages": [
                { "id": "1", "name": "own", "version": VERSION, "license": "Apache-2.0" },
                { "id": "2", "name": "used", "version": "2.0.0", "license": "MIT/Apache-2.0" },
                { "id": "3", "name": "builds", "version": "3.0.0" },
            ],
            "resolve": { "nodes": [{ "id": "1", "deps": [
                { "pkg": "2", "dep_kinds": [{ "kind": null }] },
                { "pkg": "3", "dep_kinds": [{ "kind": "build" }] },
            ] }] },
        });
        let mut facts = facts(serde_json::from_value(document).unwrap());
        facts.sums = sums(
            "[[package]]\nname = \"used\"\nversion = \"2.0.0\"\nchecksum = \"ab\"\n\n[[package]]\nname = \"own\"\n",
        );
        let subject = Subject {
            package: "own",
            name: "program",
            sum: &Sum::of(b""),
            target: Target::named("x86_64-unknown-linux-gnu").unwrap(),
        };
        let list = document_of(&subject, &inside, &facts, "then");
        let used = json!({
            "type": "library", "bom-ref": "pkg:cargo/used@2.0.0", "purl": "pkg:cargo/used@2.0.0", "name": "used",
            "version": "2.0.0", "licenses": [{ "expression": "MIT OR Apache-2.0" }],
            "hashes": [{ "alg": "SHA-256", "content": "ab" }],
        });
        assert_eq!(list["components"], json!([used]));
        let own = library("own", VERSION).reference();
        assert_eq!(
            list["dependencies"],
            json!([
                { "ref": own, "dependsOn": ["pkg:cargo/used@2.0.0"] },
                { "ref": "pkg:cargo/used@2.0.0", "dependsOn": [] },
            ])
        );
        assert_eq!(list["metadata"]["component"]["name"], "program");
    }
}
