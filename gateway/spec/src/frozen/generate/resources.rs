//! Resource requests and limits of containers.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::ObjectPlan;
use crate::cluster_config::{Amounts as AmountsOf, Resources};
use crate::devfile::Component;
use crate::frozen::FrozenProblem;
use crate::syntax::Quantity;

/// Requests and limits of one container, as Kubernetes quantities.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Needs<T = String> {
    pub(super) cpu: Amounts<T>,
    pub(super) memory: Amounts<T>,
}

/// One resource of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Amounts<T = String> {
    request: Option<T>,
    limit: Option<T>,
}

/// Selector of one amount of a container.
type Pick = fn(&Needs) -> Option<&String>;

/// Requests and limits of the container that copies the tools.
const TOOLS: Needs<&str> = Needs {
    cpu: Amounts { request: Some("100m"), limit: Some("1") },
    memory: Amounts { request: Some("256Mi"), limit: Some("512Mi") },
};

impl<T: AsRef<str>> Needs<T> {
    /// Returns the container's `resources`; null if there are none.
    pub(super) fn to_json(&self) -> Value {
        let of = |pick: fn(&Amounts<T>) -> Option<&T>| {
            let both = [("cpu", pick(&self.cpu)), ("memory", pick(&self.memory))];
            let said: BTreeMap<_, _> =
                both.into_iter().filter_map(|(name, value)| Some((name, value?.as_ref()))).collect();
            (!said.is_empty()).then_some(said)
        };
        let (requests, limits) = (of(|amounts| amounts.request.as_ref()), of(|amounts| amounts.limit.as_ref()));
        if requests.is_none() && limits.is_none() {
            return Value::Null;
        }
        json!({"requests": requests, "limits": limits})
    }
}

/// Returns the needs of a component's container: the devfile's amounts, and the cluster's defaults for those that it
/// leaves out.
pub(super) fn of(plan: &ObjectPlan<'_>, component: &Component) -> Needs {
    let defaults = plan.config.default_resources.as_ref();
    let default = |pick: fn(&Resources) -> &String| defaults.map(pick);
    let merge = |request: &Option<String>, limit: &Option<String>, defaults: [Option<&String>; 2]| {
        merged(request.as_ref(), limit.as_ref(), defaults)
    };
    Needs {
        cpu: merge(
            &component.cpu_request,
            &component.cpu_limit,
            [default(|all| &all.requests.cpu), default(|all| &all.limits.cpu)],
        ),
        memory: merge(
            &component.memory_request,
            &component.memory_limit,
            [default(|all| &all.requests.memory), default(|all| &all.limits.memory)],
        ),
    }
}

/// Puts the devfile's amounts before the defaults; a default that contradicts the devfile's other amount gives way to
/// it.
fn merged(request: Option<&String>, limit: Option<&String>, [usual, usual_limit]: [Option<&String>; 2]) -> Amounts {
    let amount = |text: Option<&String>| text.and_then(|text| read(text));
    let exceeds = |request: Option<&String>, limit: Option<&String>| match (amount(request), amount(limit)) {
        (Some(request), Some(limit)) => request > limit,
        (None, _) | (_, None) => false,
    };
    let (request, limit) = match (request, limit) {
        (None, Some(limit)) if exceeds(usual, Some(limit)) => (Some(limit), Some(limit)),
        (Some(request), None) if exceeds(Some(request), usual_limit) => (Some(request), Some(request)),
        (request, limit) => (request.or(usual), limit.or(usual_limit)),
    };
    Amounts { request: request.cloned(), limit: limit.cloned() }
}

/// Returns the needs of the container that copies the tools: never more than a whole workspace may have, or its quota would refuse
/// every pod. It requests no more than the largest of the others either: a node keeps the largest request of an init container free as
/// long as the pod lives, and the copy takes a second.
pub(super) fn tools(plan: &ObjectPlan<'_>) -> Needs {
    let needs: Vec<Needs> = plan.containers.iter().map(|component| of(plan, component)).collect();
    tools_within(bound(plan), &needs)
}

fn tools_within(most: Option<&Resources>, others: &[Needs]) -> Needs {
    let amounts = |own: &Amounts<&'static str>, pick: fn(&AmountsOf) -> &String, of: fn(&Needs) -> &Amounts| {
        let requests = others.iter().filter_map(|needs| of(needs).request.as_deref());
        let largest = requests.max_by_key(|text| read(text));
        let least = |own: Option<&'static str>, bounds: [Option<&str>; 2]| {
            let all = own.into_iter().chain(bounds.into_iter().flatten());
            all.min_by_key(|text| read(text)).map(str::to_owned)
        };
        Amounts {
            request: least(own.request, [most.map(|most| pick(&most.requests).as_str()), largest]),
            limit: least(own.limit, [most.map(|most| pick(&most.limits).as_str()), None]),
        }
    };
    Needs {
        cpu: amounts(&TOOLS.cpu, |most| &most.cpu, |needs| &needs.cpu),
        memory: amounts(&TOOLS.memory, |most| &most.memory, |needs| &needs.memory),
    }
}

/// Returns the most that a workspace may have; a namespace of several has no such bound.
fn bound<'p>(plan: &ObjectPlan<'p>) -> Option<&'p Resources> {
    plan.config.max_resources.as_ref().filter(|_| plan.config.shared_namespace.is_none())
}

fn read(text: &str) -> Option<Quantity> {
    text.parse().ok()
}

/// Finds amounts above the cluster's maximum for one workspace: Kubernetes would refuse its pod, and only the cluster's
/// administrator would see why.
pub(super) fn beyond_the_most(plan: &ObjectPlan<'_>) -> Vec<FrozenProblem> {
    let Some(most) = bound(plan) else {
        return Vec::new();
    };
    let rows: [(&str, Pick, &str); 4] = [
        ("CPU request", |needs| needs.cpu.request.as_ref().or(needs.cpu.limit.as_ref()), &most.requests.cpu),
        ("CPU limit", |needs| needs.cpu.limit.as_ref(), &most.limits.cpu),
        (
            "memory request",
            |needs| needs.memory.request.as_ref().or(needs.memory.limit.as_ref()),
            &most.requests.memory,
        ),
        ("memory limit", |needs| needs.memory.limit.as_ref(), &most.limits.memory),
    ];
    let mut problems = Vec::new();
    for (what, pick, bound) in rows {
        for component in plan.init.iter().chain(&plan.containers) {
            if pick(&of(plan, component)).is_none() {
                let message = format!("needs a {what}: the cluster bounds what a workspace takes");
                problems.push(FrozenProblem::new(format!("component {}", component.name), message));
            }
        }
        let amounts = |components: &[&Component]| -> Vec<Quantity> {
            components.iter().filter_map(|component| pick(&of(plan, component)).and_then(|text| read(text))).collect()
        };
        let together = amounts(&plan.containers).into_iter().fold(Quantity::default(), Quantity::saturating_add);
        let alone = amounts(&plan.init).into_iter().max().unwrap_or_default();
        if read(bound).is_some_and(|bound| together.max(alone) > bound) {
            let message =
                format!("all containers together have a {what} over the most that a workspace may have, {bound}");
            problems.push(FrozenProblem::new("components".to_owned(), message));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(said: [Option<&str>; 2], defaults: [Option<&str>; 2], expected: [Option<&str>; 2]) {
        let own = |text: Option<&str>| text.map(str::to_owned);
        let [request, limit] = said.map(own);
        let defaults = defaults.map(own);
        let merged = merged(request.as_ref(), limit.as_ref(), defaults.each_ref().map(Option::as_ref));
        let [request, limit] = expected.map(own);
        assert_eq!(merged, Amounts { request, limit }, "{said:?} {defaults:?}");
    }

    #[test]
    fn copy_of_the_tools_reserves_no_more_than_the_largest_container() {
        let needs = |cpu: Option<&str>, memory: Option<&str>| Needs {
            cpu: Amounts { request: cpu.map(str::to_owned), limit: None },
            memory: Amounts { request: memory.map(str::to_owned), limit: None },
        };
        let requested = |others: &[Needs]| {
            let tools = tools_within(None, others);
            [tools.cpu.request, tools.memory.request].map(Option::unwrap)
        };
        assert_eq!(requested(&[needs(Some("20m"), Some("64Mi")), needs(Some("0.01"), Some("1Ki"))]), ["20m", "64Mi"]);
        assert_eq!(requested(&[needs(Some("20m"), Some("64Mi")), needs(Some("2"), Some("1Gi"))]), ["100m", "256Mi"]);
        assert_eq!(requested(&[needs(None, None)]), ["100m", "256Mi"], "nothing is known of the others");
    }

    #[test]
    fn devfile_goes_before_defaults_and_defaults_never_contradict_it() {
        let defaults = [Some("1Gi"), Some("2Gi")];
        check([None, None], [None, None], [None, None]);
        check([None, None], defaults, defaults);
        check([Some("100Mi"), None], defaults, [Some("100Mi"), Some("2Gi")]);
        check([None, Some("1536Mi")], defaults, [Some("1Gi"), Some("1536Mi")]);
        check([None, Some("512Mi")], defaults, [Some("512Mi"), Some("512Mi")]);
        check([Some("4Gi"), None], defaults, [Some("4Gi"), Some("4Gi")]);
        check([Some("3Gi"), Some("4Gi")], defaults, [Some("3Gi"), Some("4Gi")]);
    }
}
