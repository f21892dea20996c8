//! A refusal by quotas, as a gateway reports it.

use std::fmt;

use gateway_types::quota::QuotaItem;
use serde::{Deserialize, Serialize};

use super::shown;

/// Most workspaces that are named.
const NAMED_MAX: usize = 5;

/// A refusal by quotas.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct QuotaRefusal {
    exceeded: Vec<Exceeded>,
    owned: Vec<Counted>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Exceeded {
    scope: String,
    item: String,
    used: u64,
    allowed: u64,
    asked: u64,
    message: String,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Counted {
    name: String,
    running: bool,
    cpu_millis: u64,
    memory_bytes: u64,
    storage_bytes: u64,
}

impl Counted {
    fn told(&self, item: QuotaItem) -> String {
        let amount = match item {
            QuotaItem::Workspaces | QuotaItem::Running => return shown(&self.name),
            QuotaItem::Cpu => self.cpu_millis,
            QuotaItem::Memory => self.memory_bytes,
            QuotaItem::Storage => self.storage_bytes,
        };
        format!("{} ({})", shown(&self.name), item.told(amount))
    }
}

impl fmt::Display for QuotaRefusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for exceeded in &self.exceeded {
            write!(formatter, "\n  {}", shown(&exceeded.message))?;
        }
        // One item is enough to say what would help: to stop a workspace frees all that it takes while it runs.
        let items: Vec<QuotaItem> = self.exceeded.iter().filter_map(|one| QuotaItem::named(&one.item)).collect();
        let lasts = |item: &QuotaItem| matches!(item, QuotaItem::Workspaces | QuotaItem::Storage);
        let (verb, item) = match items.iter().find(|item| lasts(item)) {
            Some(item) => ("terminate", *item),
            None => ("stop", items.first().copied().unwrap_or(QuotaItem::Running)),
        };
        let all = self.owned.iter().filter(|one| one.running || lasts(&item));
        let all: Vec<String> = all.map(|one| one.told(item)).collect();
        match all.len() {
            0 => write!(formatter, "\n  you have no workspace there to {verb}: ask the operator"),
            more if more > NAMED_MAX => {
                let named = all.get(..NAMED_MAX).unwrap_or(&all).join(", ");
                write!(formatter, "\n  {verb} one of {named} and {} more", more - NAMED_MAX)
            }
            1 => write!(formatter, "\n  {verb} {}", all.join(", ")),
            _ => write!(formatter, "\n  {verb} one of {}", all.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, told: &str) {
        let refusal: QuotaRefusal = serde_json::from_str(text).unwrap();
        assert_eq!(refusal.to_string(), told);
    }

    #[test]
    fn refusal_says_what_to_stop_and_only_if_that_does_not_help_what_to_terminate() {
        check(
            r#"{"exceeded": [{"scope": "user", "item": "cpu_millis", "message": "you have 1 CPU of 1 there"}],
                "owned": [{"name": "a", "running": true, "cpu_millis": 500}, {"name": "b", "running": true, "cpu_millis": 250},
                {"name": "c", "running": false, "cpu_millis": 250}]}"#,
            "\n  you have 1 CPU of 1 there\n  stop one of a (0.5 CPU), b (0.25 CPU)",
        );
        check(
            r#"{"exceeded": [{"item": "running", "message": "x"}, {"item": "storage_bytes", "message": "y"}],
                "owned": [{"name": "c", "running": false, "storage_bytes": 1073741824}]}"#,
            "\n  x\n  y\n  terminate c (1Gi storage)",
        );
        check(
            r#"{"exceeded": [{"item": "running", "message": "all users have 9"}], "owned": []}"#,
            "\n  all users have 9\n  you have no workspace there to stop: ask the operator",
        );
        check(r#"{"later": 1}"#, "\n  you have no workspace there to stop: ask the operator");
    }
}
