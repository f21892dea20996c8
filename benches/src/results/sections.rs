//! Sections of the page: their subjects, loads and links.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::Context as _;
use tokio_util::sync::CancellationToken;

use super::book::Section;
use super::idle;
use super::rows::{BY_HOST, DIRECT, OURS, OURS_TLS, OURS_TLS_BOTH, OURS_TLS_USERS, SHAPE, SHAPE_TLS};
use crate::lab::LabSpec;
use crate::live::ProgressReporter;
use crate::load::{Arrivals, LoadSpec, Slo};
use crate::peer::PEERS;
use crate::peer::compare::{ComparePlan, Generator, Work, compare};
use crate::peer::subject::{Subject, SubjectApp};
use crate::profile::ProfileName;
use crate::relay::LinkSpec;
use crate::units::ArrivalRate;

/// Number of WebSockets that are held idle.
const IDLE_WEBSOCKETS: usize = 1_000;

/// The shorter of the two queues beside which a quiet channel is measured.
const QUEUE_SHORT: Duration = Duration::from_millis(2);

/// Bytes of a body so long that few transfers end: their starts then cost nothing.
const BULK_BYTES: u64 = 100 << 20;

/// A section of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum SectionName {
    /// Requests, connections, WebSockets, bulk, latency, processor time: all subjects in one interleaved run.
    Throughput,
    /// A quiet channel beside bulk transfers on a narrow link.
    Quiet,
    /// Downloads over 80 ms.
    LongLink,
    /// A link that is cut again and again.
    Cuts,
    /// Memory of what is idle.
    Memory,
    /// Everybody comes back after a kill.
    Storm,
    /// Readers that stop reading.
    Stalled,
}

impl SectionName {
    /// Every section in the order of the page.
    pub const ALL: [Self; 7] =
        [Self::Throughput, Self::Quiet, Self::LongLink, Self::Cuts, Self::Memory, Self::Storm, Self::Stalled];

    /// Returns the name on the command line and in the book.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Quiet => "quiet",
            Self::LongLink => "long-link",
            Self::Cuts => "cuts",
            Self::Memory => "memory",
            Self::Storm => "storm",
            Self::Stalled => "stalled",
        }
    }
}

/// Effort of a measurement.
pub struct Effort {
    /// Number of rounds.
    pub rounds: u32,
    /// Length of each load of the throughput section; others take the time that they need.
    pub lasts: Duration,
    /// One short round.
    pub quick: bool,
    /// Longest wait for an idle machine.
    pub patience: Duration,
    /// Generator of requests in a closed loop.
    pub generator: Generator,
    /// Peers measured beyond those that the page needs.
    pub peers: Vec<String>,
    /// Destination of progress.
    pub live: ProgressReporter,
    /// Ends the measurement.
    pub stop: CancellationToken,
}

/// Measures a section.
///
/// # Errors
/// Fails if nothing of it could be measured.
pub async fn measure(name: SectionName, effort: &Effort) -> anyhow::Result<Section> {
    let section = match name {
        SectionName::Throughput => throughput(effort).await,
        SectionName::Quiet => quiet(effort).await,
        SectionName::LongLink => long_link(effort).await,
        SectionName::Cuts => cuts(effort).await,
        SectionName::Memory => memory(effort).await,
        SectionName::Storm => storm(effort).await,
        SectionName::Stalled => stalled(effort).await,
    }?;
    anyhow::ensure!(!section.samples.is_empty(), "nothing was measured: {}", section.failures.join("; "));
    Ok(section)
}

async fn throughput(effort: &Effort) -> anyhow::Result<Section> {
    let peers = [&[DIRECT, SHAPE, SHAPE_TLS][..], &BY_HOST].concat();
    let (subjects, missing) = subjects(&[OURS, OURS_TLS], &peers, &effort.peers)?;
    let http = |key, size, connections| work(effort, key, ProfileName::Http, size, connections);
    let works = vec![
        // Not on the page: the first load after a start also pays for connections and page faults.
        http("warm", 128, 64),
        http("keep128", 128, 64),
        http("keep10k", 10 << 10, 64),
        work(effort, "new128", ProfileName::Churn, 128, 64),
        http("one128", 128, 1),
        work(effort, "down1", ProfileName::Download, BULK_BYTES, 1),
        work(effort, "down8", ProfileName::Download, BULK_BYTES, 8),
        work(effort, "up1", ProfileName::Upload, BULK_BYTES, 1),
        work(effort, "up8", ProfileName::Upload, BULK_BYTES, 8),
        work(effort, "ws64", ProfileName::Ws, 128, 64),
    ];
    let mut section = compare(&plan(effort, subjects, works, None, effort.rounds)).await?.section;
    section.samples.retain(|sample| sample.load != "warm");
    section.failures.extend(missing);
    if effort.generator == Generator::Wrk {
        section.notes.push("Requests in a closed loop were made by wrk, everything else by the lab.".to_owned());
    }
    Ok(section)
}

/// Measures the quiet channel. Peers share the link by TCP's rules or in one connection; the profile adds a tunnel
/// without a scheduler by itself. The wait in the link's own queue is the same for all subjects, and none of them can
/// change it: the gateway is measured once more with a shorter one.
async fn quiet(effort: &Effort) -> anyhow::Result<Section> {
    let (subjects, missing) = subjects(&[OURS], &["nginx+ssh-R", "chisel", SHAPE], &effort.peers)?;
    let link = link(Some(20_000_000), Duration::from_millis(20), 0.0);
    let lasts = if effort.quick { 3 } else { 30 };
    let work = lasting(own_work("noisy-neighbour", ProfileName::NoisyNeighbour), lasts);
    let own = subjects.iter().take(1).cloned().collect();
    let mut whole = compare(&plan(effort, subjects, vec![work], Some(link), effort.rounds)).await?.section;
    whole.failures.extend(missing);
    let mut work = lasting(own_work("noisy-neighbour-short", ProfileName::NoisyNeighbour), lasts);
    set(&mut work, "fifo", 0);
    let link = LinkSpec { queue: QUEUE_SHORT, ..link };
    let short = compare(&plan(effort, own, vec![work], Some(link), effort.rounds)).await;
    merge(&mut whole, "noisy-neighbour-short", short.map(|found| found.section));
    Ok(whole)
}

async fn long_link(effort: &Effort) -> anyhow::Result<Section> {
    let links = [
        ("100 Mbit/s", 100_000_000, 0.0),
        ("1 Gbit/s", 1_000_000_000, 0.0),
        ("100 Mbit/s, 1 % loss", 100_000_000, 0.01),
        ("1 Gbit/s, 1 % loss", 1_000_000_000, 0.01),
    ];
    let mut whole = Section::default();
    for (key, rate, loss) in links {
        let (subjects, missing) = subjects(&[OURS], &[DIRECT, SHAPE], &effort.peers)?;
        let link = link(Some(rate), Duration::from_millis(40), loss);
        let mut work = lasting(work(effort, key, ProfileName::Download, 1 << 30, 1), if effort.quick { 3 } else { 10 });
        work.load.warm_up = Duration::from_secs(if effort.quick { 1 } else { 5 });
        whole.failures.extend(missing);
        let part = compare(&plan(effort, subjects, vec![work], Some(link), effort.rounds)).await;
        merge(&mut whole, key, part.map(|found| found.section));
    }
    whole.notes.push(
        "The link is the lab's relay: delay and rate on the byte stream, 40 ms each way; a loss is a pause of the stream \
         and not a lost packet, for each subject alike."
            .to_owned(),
    );
    Ok(whole)
}

async fn cuts(effort: &Effort) -> anyhow::Result<Section> {
    let (subjects, _) = subjects(&[OURS, OURS_TLS], &[], &[])?;
    let mut work = own_work("link-cut", ProfileName::LinkCut);
    set(&mut work, "cuts", if effort.quick { 3 } else { 100 });
    let link = link(None, Duration::from_millis(10), 0.0);
    Ok(compare(&plan(effort, subjects, vec![work], Some(link), effort.rounds.min(3))).await?.section)
}

async fn storm(effort: &Effort) -> anyhow::Result<Section> {
    let work = lasting(own_work("storm", ProfileName::Storm), 30);
    fleet(effort, work, if effort.quick { 200 } else { 10_000 }, false).await
}

async fn stalled(effort: &Effort) -> anyhow::Result<Section> {
    let (subjects, _) = subjects(&[OURS], &[], &[])?;
    let mut work = lasting(own_work("slow-reader", ProfileName::SlowReader), if effort.quick { 3 } else { 20 });
    set(&mut work, "readers", if effort.quick { 50 } else { 1_000 });
    Ok(compare(&plan(effort, subjects, vec![work], None, effort.rounds)).await?.section)
}

/// Runs a profile that needs many agents on a lab that knows as many workspaces.
async fn fleet(effort: &Effort, mut work: Work, agents: usize, link_tls: bool) -> anyhow::Result<Section> {
    set(&mut work, "agents", agents);
    let subject = Subject::gateway(LabSpec { link_tls, workspaces: agents + 1, ..LabSpec::default() });
    Ok(compare(&plan(effort, vec![subject], vec![work], None, effort.rounds.min(3))).await?.section)
}

async fn memory(effort: &Effort) -> anyhow::Result<Section> {
    let agents = if effort.quick { 100 } else { 10_000 };
    let mut whole = Section::default();
    for link_tls in [false, true] {
        let work = lasting(own_work("idle-agents", ProfileName::Idle), if effort.quick { 1 } else { 10 });
        merge(&mut whole, "idle-agents", fleet(effort, work, agents, link_tls).await);
    }
    let gateways = [OURS, OURS_TLS, OURS_TLS_BOTH];
    let (subjects, missing) = subjects(&gateways, &[&[SHAPE][..], &BY_HOST].concat(), &effort.peers)?;
    whole.failures.extend(missing);
    idle_websockets(effort, &subjects, &mut whole).await?;
    Ok(whole)
}

/// Adds a part to a section; a part that could not be measured is named and does not cost the others.
fn merge(whole: &mut Section, load: &str, part: anyhow::Result<Section>) {
    match part {
        Ok(part) => {
            whole.samples.extend(part.samples);
            whole.notes.extend(part.notes);
            whole.failures.extend(part.failures);
            whole.versions.extend(part.versions);
        }
        Err(error) => whole.failures.push(format!("{load}: {error:#}")),
    }
    let mut seen = BTreeSet::new();
    whole.failures.retain(|failure| seen.insert(failure.clone()));
}

async fn idle_websockets(effort: &Effort, subjects: &[Subject], whole: &mut Section) -> anyhow::Result<()> {
    let folder = tempfile::Builder::new().prefix("loadlab-").tempdir()?;
    let app = SubjectApp::start(folder.path()).await?;
    let count = if effort.quick { 100 } else { IDLE_WEBSOCKETS };
    for round in 0..effort.rounds.min(3) {
        for subject in subjects {
            if effort.stop.is_cancelled() {
                break;
            }
            effort.live.note(&format!("round {}, {}, {count} idle WebSockets", round + 1, subject.name()));
            let place = folder.path().join(format!("{round}-{}", subject.name().replace('+', "-")));
            let measured = async {
                let started = subject.start(&app, &place, None).await?;
                let values = idle::websockets(&started, count).await;
                started.stop().await;
                values
            };
            match measured.await {
                Ok(values) => whole.add(round, subject.name(), "idle-websockets", values),
                Err(error) => whole.failures.push(format!("{} with idle WebSockets: {error:#}", subject.name())),
            }
        }
    }
    app.stop().await;
    Ok(())
}

/// Collects the subjects that are here; returns also the missing ones, with the reasons.
fn subjects(gateways: &[&str], peers: &[&str], more: &[String]) -> anyhow::Result<(Vec<Subject>, Vec<String>)> {
    let gateway = |name: &&str| {
        let users_tls = [OURS_TLS_USERS, OURS_TLS_BOTH].contains(name);
        let link_tls = [OURS_TLS, OURS_TLS_BOTH].contains(name);
        Subject::gateway(LabSpec { users_tls, link_tls, ..LabSpec::default() })
    };
    let mut chosen: Vec<Subject> = gateways.iter().map(gateway).collect();
    let everybody = more.iter().any(|name| name == "all");
    let more: Vec<&str> = if everybody {
        PEERS.iter().map(|peer| peer.name).collect()
    } else {
        more.iter().map(String::as_str).collect()
    };
    let mut missing = Vec::new();
    for name in [peers, &more].concat() {
        if chosen.iter().any(|subject| subject.name() == name) {
            continue;
        }
        let subject = Subject::peer(name).context("choosing the peers")?;
        match &subject {
            Subject::Peer(peer) if let Some(why) = peer.missing() => missing.push(format!("{name}: {why}")),
            Subject::Peer(_) | Subject::Gateway { .. } => chosen.push(subject),
        }
    }
    Ok((chosen, missing))
}

fn plan(effort: &Effort, subjects: Vec<Subject>, works: Vec<Work>, link: Option<LinkSpec>, rounds: u32) -> ComparePlan {
    ComparePlan {
        subjects,
        works,
        rounds,
        link,
        generator: effort.generator,
        patience: effort.patience,
        live: effort.live.clone(),
        stop: effort.stop.clone(),
    }
}

/// Makes work in a closed loop, as wrk and published figures for peers have it.
fn work(effort: &Effort, key: &str, profile: ProfileName, size: u64, connections: usize) -> Work {
    let load = LoadSpec {
        rate: ArrivalRate::Max,
        arrivals: Arrivals::Poisson,
        connections,
        duration: effort.lasts,
        warm_up: Duration::from_millis(500),
        seed: 1,
        size,
        workers: connections.min(2),
        timeout: Duration::from_secs(10),
        slo: Slo { p99: None, ..Slo::default() },
        settings: BTreeMap::new(),
    };
    Work { key: key.to_owned(), profile, load }
}

/// Makes work with a profile's default load.
fn own_work(key: &str, profile: ProfileName) -> Work {
    Work { key: key.to_owned(), profile, load: profile.load() }
}

fn set(work: &mut Work, key: &str, value: usize) {
    work.load.settings.insert(key.to_owned(), value.to_string());
}

fn lasting(mut work: Work, seconds: u64) -> Work {
    work.load.duration = Duration::from_secs(seconds);
    work
}

fn link(rate_bits: Option<u64>, delay: Duration, loss: f64) -> LinkSpec {
    LinkSpec { rate_bits, delay, loss, ..LinkSpec::default() }
}

#[cfg(test)]
mod tests {
    use super::super::rows::ROWS;
    use super::*;

    #[test]
    fn every_row_has_a_section_that_can_be_measured() {
        let known: Vec<_> = SectionName::ALL.iter().map(|name| name.as_str()).collect();
        for row in ROWS {
            assert!(known.contains(&row.section), "{}", row.key);
        }
        for name in known {
            assert!(ROWS.iter().any(|row| row.section == name), "{name} is on no row");
        }
    }

    #[test]
    fn gateways_are_encrypted_as_their_names_say() {
        for name in [OURS, OURS_TLS, OURS_TLS_USERS, OURS_TLS_BOTH] {
            let (chosen, _) = subjects(&[name], &[], &[]).unwrap();
            assert_eq!(chosen.iter().map(Subject::name).collect::<Vec<_>>(), [name]);
        }
        let (chosen, _) = subjects(&[OURS_TLS], &[], &[]).unwrap();
        let [Subject::Gateway { spec, .. }] = &chosen[..] else { panic!("{chosen:?}") };
        assert!(spec.link_tls && !spec.users_tls, "the same hop as that of {SHAPE_TLS}");
    }

    #[test]
    fn peers_named_twice_are_measured_once() {
        let (chosen, _) = subjects(&[OURS], &[DIRECT], &["direct".to_owned()]).unwrap();
        assert_eq!(chosen.iter().map(Subject::name).collect::<Vec<_>>(), ["gateway", "direct"]);
        assert!(subjects(&[], &[], &["nginxx".to_owned()]).is_err());
    }
}
