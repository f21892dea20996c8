//! Quotas of workspaces in a cluster or CI system: what counts, and the decision whether one more may be made or started.
//!
//! What counts is what a workspace asks its cluster to keep free for it: the requests of its pod, and the sizes of its claims. A
//! workspace counts from the moment that it is to be, and its processors and memory for as long as it is to run: not what is
//! observed, so that one that is asked to stop makes room at once.

use std::fmt;

/// Most of each amount that a workspace counts for: sums of many thousands of them stay within 64 bits of a database.
pub const NEED_MAX: u64 = 1 << 48;

/// Needs of one workspace in its cluster, each at most [`NEED_MAX`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Thousandths of a processor while it runs.
    pub cpu_millis: u64,
    /// Memory in bytes while it runs.
    pub memory_bytes: u64,
    /// Bytes of its claims, until it is terminated.
    pub storage_bytes: u64,
}

/// Amounts that workspaces take together, or that are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Workspaces that are not to be terminated.
    pub workspaces: u64,
    /// Those of them that are to run.
    pub running: u64,
    /// Thousandths of a processor of those that are to run.
    pub cpu_millis: u64,
    /// Bytes of memory of those that are to run.
    pub memory_bytes: u64,
    /// Bytes of the claims of all of them.
    pub storage_bytes: u64,
}

/// Limits of [`Usage`]; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Workspaces.
    pub workspaces: Option<u64>,
    /// Workspaces that are to run.
    pub running: Option<u64>,
    /// Thousandths of a processor.
    pub cpu_millis: Option<u64>,
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
    /// Bytes of claims.
    pub storage_bytes: Option<u64>,
}

/// Limits of a cluster or CI system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quotas {
    /// Of all workspaces there.
    pub cluster: Quota,
    /// Of those of one owner there.
    pub user: Quota,
}

/// One amount of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaItem {
    /// Workspaces that are not to be terminated.
    Workspaces,
    /// Workspaces that are to run.
    Running,
    /// Processors.
    Cpu,
    /// Memory.
    Memory,
    /// Claims.
    Storage,
}

/// Workspaces that a quota is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaScope {
    /// All in the cluster or CI system.
    Cluster,
    /// Those of the owner there.
    User,
}

/// A limit that a request would break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Excess {
    /// Workspaces that are counted.
    pub scope: QuotaScope,
    /// What is counted.
    pub item: QuotaItem,
    /// Amount in use, without the request. It may be above the limit: a lowered quota stops nothing.
    pub used: u64,
    /// The limit.
    pub allowed: u64,
    /// Amount that the request adds.
    pub asked: u64,
}

impl Needs {
    /// Returns what making a workspace with these needs adds: it is to run at once.
    #[must_use]
    pub const fn to_create(self) -> Usage {
        Usage { workspaces: 1, storage_bytes: self.storage_bytes, ..self.to_start() }
    }

    /// Returns what starting a stopped workspace with these needs adds: its claims are there.
    #[must_use]
    pub const fn to_start(self) -> Usage {
        let Self { cpu_millis, memory_bytes, .. } = self;
        Usage { workspaces: 0, running: 1, cpu_millis, memory_bytes, storage_bytes: 0 }
    }
}

impl QuotaItem {
    /// All of them, in the order in which they are reported.
    pub const ALL: [Self; 5] = [Self::Workspaces, Self::Running, Self::Cpu, Self::Memory, Self::Storage];

    /// Returns its name in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Workspaces => "workspaces",
            Self::Running => "running",
            Self::Cpu => "cpu_millis",
            Self::Memory => "memory_bytes",
            Self::Storage => "storage_bytes",
        }
    }

    /// Finds an item by its name in the API.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|item| item.as_str() == name)
    }

    /// Writes an amount of it for people.
    #[must_use]
    pub fn told(self, amount: u64) -> String {
        match self {
            Self::Workspaces => format!("{amount} workspaces"),
            Self::Running => format!("{amount} running workspaces"),
            Self::Cpu => format!("{} CPU", thousandths(amount)),
            Self::Memory => format!("{} memory", bytes(amount)),
            Self::Storage => format!("{} storage", bytes(amount)),
        }
    }
}

impl QuotaScope {
    /// Returns its name in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::User => "user",
        }
    }
}

impl Usage {
    /// Returns one of its amounts.
    #[must_use]
    pub const fn of(&self, item: QuotaItem) -> u64 {
        match item {
            QuotaItem::Workspaces => self.workspaces,
            QuotaItem::Running => self.running,
            QuotaItem::Cpu => self.cpu_millis,
            QuotaItem::Memory => self.memory_bytes,
            QuotaItem::Storage => self.storage_bytes,
        }
    }
}

impl Quota {
    /// Returns one of its limits.
    #[must_use]
    pub const fn of(&self, item: QuotaItem) -> Option<u64> {
        match item {
            QuotaItem::Workspaces => self.workspaces,
            QuotaItem::Running => self.running,
            QuotaItem::Cpu => self.cpu_millis,
            QuotaItem::Memory => self.memory_bytes,
            QuotaItem::Storage => self.storage_bytes,
        }
    }
}

impl Quotas {
    /// Makes limits of the number of workspaces alone.
    #[must_use]
    pub fn of_workspaces(cluster: Option<u32>, user: Option<u32>) -> Self {
        let count = |limit: Option<u32>| Quota { workspaces: limit.map(u64::from), ..Quota::default() };
        Self { cluster: count(cluster), user: count(user) }
    }

    /// Returns every limit that a request would break, given what is in use: by all, and by the owner. Empty: it may be done.
    ///
    /// A request that adds nothing of an amount never breaks the limit of it, whatever is in use: a lowered quota
    /// refuses what is new, and neither stops a workspace nor keeps one that runs from its restart.
    #[must_use]
    pub fn broken_by(&self, asked: &Usage, cluster: &Usage, user: &Usage) -> Vec<Excess> {
        let scopes = [(QuotaScope::User, &self.user, user), (QuotaScope::Cluster, &self.cluster, cluster)];
        let pairs = scopes.into_iter().flat_map(|scope| QuotaItem::ALL.map(|item| (scope, item)));
        let excess = pairs.filter_map(|((scope, quota, used), item)| {
            let (allowed, used, asked) = (quota.of(item)?, used.of(item), asked.of(item));
            let is_over = asked > 0 && used.saturating_add(asked) > allowed;
            is_over.then_some(Excess { scope, item, used, allowed, asked })
        });
        excess.collect()
    }

    /// Returns whether any limit is about what workspaces ask of their cluster, and not their number alone.
    #[must_use]
    pub fn counts_needs(&self) -> bool {
        let is_limited = |item| self.cluster.of(item).or(self.user.of(item)).is_some();
        [QuotaItem::Cpu, QuotaItem::Memory, QuotaItem::Storage].into_iter().any(is_limited)
    }
}

impl fmt::Display for Excess {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scope, item, used, allowed, asked } = *self;
        let whose = match scope {
            QuotaScope::Cluster => "all users together have",
            QuotaScope::User => "you have",
        };
        let (used, asked) = (item.told(used), item.told(asked));
        write!(formatter, "{whose} {used} of {} there, and this needs {asked} more", amount(item, allowed))
    }
}

/// Writes a limit without the word for what it is of, which stands before it.
fn amount(item: QuotaItem, amount: u64) -> String {
    match item {
        QuotaItem::Workspaces | QuotaItem::Running => amount.to_string(),
        QuotaItem::Cpu => thousandths(amount),
        QuotaItem::Memory | QuotaItem::Storage => bytes(amount),
    }
}

/// Writes thousandths as a number with at most three places.
fn thousandths(millis: u64) -> String {
    let text = format!("{}.{:03}", millis / 1000, millis % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Writes bytes in the largest binary unit, with at most one place.
fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];
    let (mut tenths, mut unit) = (u128::from(bytes) * 10, 0);
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths = tenths.div_ceil(1024);
        unit += 1;
    }
    let name = UNITS.get(unit).copied().unwrap_or_default();
    match tenths % 10 {
        0 => format!("{}{name}", tenths / 10),
        rest => format!("{}.{rest}{name}", tenths / 10),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GI: u64 = 1 << 30;

    fn quota(running: u64, cpu_millis: u64) -> Quota {
        Quota { running: Some(running), cpu_millis: Some(cpu_millis), ..Quota::default() }
    }

    #[test]
    fn every_broken_limit_is_named_with_its_amounts_the_owners_first() {
        let quotas = Quotas { cluster: quota(10, 4000), user: quota(2, 1500) };
        let asked = Needs { cpu_millis: 1000, memory_bytes: GI, storage_bytes: GI }.to_create();
        let theirs = Usage { workspaces: 5, running: 2, cpu_millis: 1000, ..Usage::default() };
        let all = Usage { running: 7, cpu_millis: 3500, ..theirs };
        let excess = |scope, item, used, allowed, asked| Excess { scope, item, used, allowed, asked };
        let expected = [
            excess(QuotaScope::User, QuotaItem::Running, 2, 2, 1),
            excess(QuotaScope::User, QuotaItem::Cpu, 1000, 1500, 1000),
            excess(QuotaScope::Cluster, QuotaItem::Cpu, 3500, 4000, 1000),
        ];
        assert_eq!(quotas.broken_by(&asked, &all, &theirs), expected);
        let told = "you have 1 CPU of 1.5 there, and this needs 1 CPU more";
        assert_eq!(expected[1].to_string(), told);
        let told = "all users together have 3.5 CPU of 4 there, and this needs 1 CPU more";
        assert_eq!(expected[2].to_string(), told);
    }

    #[test]
    fn request_may_reach_a_limit_and_not_pass_it() {
        let limit =
            |storage| Quotas { user: Quota { storage_bytes: Some(storage), ..Quota::default() }, ..Quotas::default() };
        let asked = Needs { storage_bytes: 50 * GI, ..Needs::default() }.to_create();
        let used = Usage { storage_bytes: 50 * GI, ..Usage::default() };
        assert_eq!(limit(100 * GI).broken_by(&asked, &used, &used), []);
        assert_eq!(limit(100 * GI - 1).broken_by(&asked, &used, &used).len(), 1);
        let start = Needs { storage_bytes: 50 * GI, ..Needs::default() }.to_start();
        assert_eq!(limit(1).broken_by(&start, &used, &used), [], "the claims of a stopped workspace are there already");
    }

    #[test]
    fn amounts_are_written_for_people() {
        for (item, amount, told) in [
            (QuotaItem::Cpu, 0, "0 CPU"),
            (QuotaItem::Cpu, 250, "0.25 CPU"),
            (QuotaItem::Cpu, 12_000, "12 CPU"),
            (QuotaItem::Memory, 1023, "1023 memory"),
            (QuotaItem::Memory, 1536 << 20, "1.5Gi memory"),
            (QuotaItem::Storage, 50 * GI, "50Gi storage"),
            (QuotaItem::Storage, u64::MAX, "16384Pi storage"),
            (QuotaItem::Running, 3, "3 running workspaces"),
        ] {
            assert_eq!(item.told(amount), told);
            assert_eq!(QuotaItem::named(item.as_str()), Some(item));
        }
    }

    fn usage() -> impl Strategy<Value = Usage> {
        (0..4_u64, 0..4_u64, 0..4_u64, 0..4_u64, 0..4_u64).prop_map(
            |(workspaces, running, cpu_millis, memory_bytes, storage_bytes)| Usage {
                workspaces,
                running,
                cpu_millis,
                memory_bytes,
                storage_bytes,
            },
        )
    }

    fn limits() -> impl Strategy<Value = Quota> {
        let limit = || proptest::option::of(0..8_u64);
        (limit(), limit(), limit(), limit(), limit()).prop_map(
            |(workspaces, running, cpu_millis, memory_bytes, storage_bytes)| Quota {
                workspaces,
                running,
                cpu_millis,
                memory_bytes,
                storage_bytes,
            },
        )
    }

    proptest! {
        #[test]
        fn request_is_admitted_exactly_if_no_amount_that_it_adds_ends_above_its_limit(
            cluster in limits(), user in limits(), all in usage(), theirs in usage(), asked in usage(),
        ) {
            let quotas = Quotas { cluster, user };
            let broken = quotas.broken_by(&asked, &all, &theirs);
            for (scope, quota, used) in [(QuotaScope::Cluster, cluster, all), (QuotaScope::User, user, theirs)] {
                for item in QuotaItem::ALL {
                    let is_broken = broken.iter().any(|one| (one.scope, one.item) == (scope, item));
                    let fits = quota.of(item).is_none_or(|limit| used.of(item) + asked.of(item) <= limit);
                    prop_assert_eq!(is_broken, asked.of(item) > 0 && !fits);
                }
            }
            prop_assert_eq!(quotas.broken_by(&Usage::default(), &all, &theirs), []);
        }

        #[test]
        fn what_is_admitted_with_more_in_use_is_admitted_with_less(
            cluster in limits(), all in usage(), asked in usage(), less in 0..4_u64,
        ) {
            let quotas = Quotas { cluster, user: Quota::default() };
            let lower = Usage { running: all.running.saturating_sub(less), cpu_millis: all.cpu_millis.saturating_sub(less), ..all };
            let broken = |used: &Usage| quotas.broken_by(&asked, used, &Usage::default()).len();
            prop_assert!(broken(&lower) <= broken(&all));
        }
    }
}
