//! Measured figures, kept beside the page as JSON, so that one section can be measured again without the others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::spread::Spread;

/// Everything that `RESULTS.md` is written from.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct ResultsBook {
    /// The measured sections by key.
    pub sections: BTreeMap<String, Section>,
}

/// One run of one section.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Section {
    /// The command that repeats it.
    pub command: String,
    /// The day it was measured, `2026-01-31`.
    pub date: String,
    /// Machine and network.
    pub conditions: Conditions,
    /// Whether it was a short run that only shows that everything works.
    pub quick: bool,
    /// The figures.
    pub samples: Vec<Sample>,
    /// Notes for readers.
    pub notes: Vec<String>,
    /// Subjects that were not measured, or not in each round, with the reasons.
    pub failures: Vec<String>,
    /// Versions of the peers.
    pub versions: BTreeMap<String, String>,
}

/// The machine and its network.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conditions {
    /// Processor, count, memory, kernel.
    pub machine: String,
    /// Loopback or a namespace, packet size, congestion control.
    pub network: String,
    /// The revision of the sources, if known.
    pub revision: String,
}

/// The figures of one subject under one load in one round.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sample {
    /// Counted from zero. Samples of the same round were taken right after each other.
    pub round: u32,
    /// `gateway`, or the name of a peer.
    pub subject: String,
    /// The load.
    pub load: String,
    /// Figures by name; the unit is part of the name.
    pub values: BTreeMap<String, f64>,
}

impl ResultsBook {
    /// Reads the book; an absent file is an empty one.
    ///
    /// # Errors
    /// Fails if the file is there but is not a book.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
        };
        serde_json::from_str(&text).with_context(|| format!("{} is not a book of results", path.display()))
    }

    /// Writes the book, whole or not at all.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        let unfinished = path.with_extension("json.new");
        std::fs::write(&unfinished, text + "\n").with_context(|| format!("writing {}", unfinished.display()))?;
        std::fs::rename(&unfinished, path).with_context(|| format!("writing {}", path.display()))
    }
}

impl Section {
    /// Adds the figures of one measurement.
    pub fn add(&mut self, round: u32, subject: &str, load: &str, values: BTreeMap<String, f64>) {
        self.samples.push(Sample { round, subject: subject.to_owned(), load: load.to_owned(), values });
    }

    /// Returns the subjects under a load in the order in which they first appear.
    #[must_use]
    pub fn subjects(&self, load: &str) -> Vec<&str> {
        let mut seen = BTreeSet::new();
        let of_load = self.samples.iter().filter(|sample| sample.load == load);
        of_load.map(|sample| sample.subject.as_str()).filter(|subject| seen.insert(*subject)).collect()
    }

    /// Returns the loads in the order in which they first appear.
    #[must_use]
    pub fn loads(&self) -> Vec<&str> {
        let mut seen = BTreeSet::new();
        self.samples.iter().map(|sample| sample.load.as_str()).filter(|load| seen.insert(*load)).collect()
    }

    /// Returns one figure by round.
    #[must_use]
    pub fn by_round(&self, load: &str, subject: &str, value: &str) -> BTreeMap<u32, f64> {
        let of_pair = self.samples.iter().filter(|sample| sample.load == load && sample.subject == subject);
        of_pair.filter_map(|sample| Some((sample.round, *sample.values.get(value)?))).collect()
    }

    /// Returns the spread of one figure.
    #[must_use]
    pub fn spread(&self, load: &str, subject: &str, value: &str) -> Option<Spread> {
        Spread::of(self.by_round(load, subject, value).into_values())
    }

    /// Combines a figure of two subjects within each round and returns the spread of the results.
    ///
    /// Rounds in which one of the two is missing do not count: figures of different rounds are never compared.
    #[must_use]
    pub fn paired(
        &self,
        load: &str,
        value: &str,
        [ours, theirs]: [&str; 2],
        combine: fn(f64, f64) -> f64,
    ) -> Option<Spread> {
        let theirs = self.by_round(load, theirs, value);
        let ours = self.by_round(load, ours, value);
        Spread::of(ours.iter().filter_map(|(round, ours)| Some(combine(*ours, *theirs.get(round)?))))
    }

    /// Returns the spread of the ratio of two subjects, taken within each round.
    #[must_use]
    pub fn ratio(&self, load: &str, value: &str, pair: [&str; 2]) -> Option<Spread> {
        self.paired(load, value, pair, |ours, theirs| ours / theirs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section() -> Section {
        let mut section = Section::default();
        for (round, ours, theirs) in [(0, 10.0, 20.0), (1, 30.0, 20.0), (2, 20.0, 20.0)] {
            section.add(round, "gateway", "keep", BTreeMap::from([("per_s".to_owned(), ours)]));
            section.add(round, "nginx", "keep", BTreeMap::from([("per_s".to_owned(), theirs)]));
        }
        section.add(3, "gateway", "keep", BTreeMap::from([("per_s".to_owned(), 999.0)]));
        section
    }

    #[test]
    fn ratios_are_taken_within_rounds() {
        let spread = section().ratio("keep", "per_s", ["gateway", "nginx"]).unwrap();
        assert_eq!(spread, Spread { median: 1.0, min: 0.5, max: 1.5, count: 3 });
    }

    #[test]
    fn book_is_read_back_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.json");
        let mut book = ResultsBook::read(&path).unwrap();
        book.sections.insert("x".to_owned(), section());
        book.write(&path).unwrap();

        let again = ResultsBook::read(&path).unwrap();
        assert_eq!(serde_json::to_value(&again).unwrap(), serde_json::to_value(&book).unwrap());
        std::fs::write(&path, "{").unwrap();
        assert!(ResultsBook::read(&path).unwrap_err().to_string().contains("is not a book of results"));
    }
}
