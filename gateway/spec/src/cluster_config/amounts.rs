//! Amounts of processor time and memory.

use serde::{Deserialize, Serialize};

use crate::document::{Problems, Value, ValueAt, show};
use crate::syntax::{BadQuantity, Quantity};

/// Requests and limits of a container. No request is more than its limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resources {
    /// Requested amounts.
    pub requests: Amounts,
    /// Most that may be taken.
    pub limits: Amounts,
}

/// Kubernetes quantities, as the file spells them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Amounts {
    /// Processors.
    pub cpu: String,
    /// Bytes.
    pub memory: String,
}

/// An amount with its place.
struct Amount<'n> {
    text: String,
    size: Quantity,
    at: ValueAt<'n>,
}

/// Reads requests and limits. An empty map says nothing; otherwise all four have to be there.
pub(super) fn read(at: &ValueAt<'_>, problems: &mut Problems) -> Option<Resources> {
    if at.node.value == Value::Map(Vec::new()) {
        return None;
    }
    let mut fields = at.fields(problems)?;
    let requests = fields.require("requests", problems).map(|at| read_pair(&at, problems));
    let limits = fields.require("limits", problems).map(|at| read_pair(&at, problems));
    fields.finish(problems);
    let ([cpu_request, memory_request], [cpu_limit, memory_limit]) = (requests?, limits?);
    for (request, limit) in [(&cpu_request, &cpu_limit), (&memory_request, &memory_limit)] {
        if let (Some(request), Some(limit)) = (request, limit)
            && request.size > limit.size
        {
            request.at.object(problems, format!("is more than the limit, {}", limit.text));
        }
    }
    let text = |amount: Option<Amount<'_>>| amount.map(|amount| amount.text);
    Some(Resources {
        requests: Amounts { cpu: text(cpu_request)?, memory: text(memory_request)? },
        limits: Amounts { cpu: text(cpu_limit)?, memory: text(memory_limit)? },
    })
}

/// Reads processors and memory.
fn read_pair<'n>(at: &ValueAt<'n>, problems: &mut Problems) -> [Option<Amount<'n>>; 2] {
    let Some(mut fields) = at.fields(problems) else {
        return [None, None];
    };
    let cpu = fields.require("cpu", problems).and_then(|at| read_one(at, problems));
    let memory = fields.require("memory", problems).and_then(|at| read_one(at, problems));
    fields.finish(problems);
    let memory = memory.filter(|memory| {
        let is_whole = memory.size.is_whole();
        if !is_whole {
            let message = "is not a whole number of bytes: m is a thousandth of one, M and Mi are millions";
            memory.at.object(problems, format!("{message}; it is {}", show(&memory.text)));
        }
        is_whole
    });
    [cpu, memory]
}

/// Reads an amount as its text.
pub(super) fn read_text(at: ValueAt<'_>, problems: &mut Problems) -> Option<String> {
    read_one(at, problems).map(|amount| amount.text)
}

/// Reads an amount; a number without quotes is one, as in Kubernetes' own files.
fn read_one<'n>(at: ValueAt<'n>, problems: &mut Problems) -> Option<Amount<'n>> {
    let text = match &at.node.value {
        Value::Number(text) => text.as_str(),
        Value::Null | Value::Bool(_) | Value::Text(_) | Value::List(_) | Value::Map(_) => at.text(problems)?,
    };
    let parsed: Result<Quantity, BadQuantity> = text.parse();
    match parsed {
        Ok(size) => Some(Amount { text: text.to_owned(), size, at }),
        Err(bad) => {
            at.object(problems, format!("{bad}; it is {}", show(text)));
            None
        }
    }
}
