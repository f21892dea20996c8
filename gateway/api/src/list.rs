//! Pages of lists: `limit` bounds a page, `cursor` names the item behind which the next one begins.
//!
//! A cursor holds the key of the last item and nothing else, so a page stays right when items come and go meanwhile: no item
//! that is there all along is left out or comes twice.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Uri;
use serde::Serialize;

use super::problem::{Mistake, ProblemRow};

/// Items of a page if the query names no limit.
const LIMIT_DEFAULT: u32 = 50;

/// Most items of a page.
const LIMIT_MAX: u32 = 200;

/// Page that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PageRequest<K> {
    /// The key behind which it begins.
    pub(super) after: Option<K>,
    /// Most items that it may have.
    pub(super) limit: u32,
}

impl<K: std::str::FromStr> PageRequest<K> {
    /// Reads the query. `kind` keeps cursors of different lists apart.
    pub(super) fn read(uri: &Uri, kind: &str) -> Result<Self, ProblemRow> {
        Self::read_filtered(uri, kind, &[]).map(|(page, _)| page)
    }

    /// Reads the query of a list that can be narrowed down by these `filters`, and their values.
    pub(super) fn read_filtered(
        uri: &Uri,
        kind: &str,
        filters: &[&'static str],
    ) -> Result<(Self, BTreeMap<&'static str, String>), ProblemRow> {
        let (mut mistakes, mut narrowed) = (Vec::new(), BTreeMap::new());
        let mut page = Self { after: None, limit: LIMIT_DEFAULT };
        let mut seen = Vec::new();
        for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
            let (name, wrong) = match &*name {
                "limit" => match value.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit)) {
                    Some(limit) => {
                        page.limit = limit;
                        ("limit", None)
                    }
                    None => ("limit", Some(format!("has to be a whole number from 1 to {LIMIT_MAX}"))),
                },
                "cursor" => match decode(&value, kind) {
                    Some(key) => {
                        page.after = Some(key);
                        ("cursor", None)
                    }
                    None => ("cursor", Some("is not one that this list gave out".to_owned())),
                },
                other => match filters.iter().find(|filter| **filter == other) {
                    Some(filter) => {
                        narrowed.insert(*filter, value.into_owned());
                        (*filter, None)
                    }
                    None => {
                        let known = [&["limit", "cursor"], filters].concat().join(", ");
                        ("", Some(format!("has an unknown parameter; known are {known}")))
                    }
                },
            };
            let wrong = if seen.contains(&name) { Some("is there twice".to_owned()) } else { wrong };
            seen.push(name);
            mistakes.extend(wrong.map(|detail| Mistake { pointer: format!("?{name}"), detail }));
        }
        if mistakes.is_empty() { Ok((page, narrowed)) } else { Err(ProblemRow::invalid(mistakes)) }
    }

    /// Returns the number of items to look up: one more than fits tells whether there is another page.
    pub(super) fn look_up(&self) -> u32 {
        self.limit + 1
    }

    /// Cuts the items found to the page, and makes the cursor of the next one.
    pub(super) fn cut<T, R: Serialize>(
        &self,
        mut found: Vec<T>,
        kind: &str,
        key: impl Fn(&T) -> String,
        row: impl Fn(&T) -> R,
    ) -> (Vec<R>, Option<String>) {
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let has_more = found.len() > limit;
        found.truncate(limit);
        let next = found.last().filter(|_| has_more).map(|last| encode(&key(last), kind));
        (found.iter().map(row).collect(), next)
    }
}

/// Makes the cursor behind a key.
pub(super) fn encode(key: &str, kind: &str) -> String {
    URL_SAFE_NO_PAD.encode(format!("{kind}:{key}"))
}

fn decode<K: std::str::FromStr>(cursor: &str, kind: &str) -> Option<K> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    text.strip_prefix(kind)?.strip_prefix(':')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn page(query: &str) -> Result<PageRequest<u32>, ProblemRow> {
        PageRequest::read(&format!("/x?{query}").parse().unwrap(), "n")
    }

    /// What a store does: the numbers behind the cursor, in order.
    fn look_up(all: &std::collections::BTreeSet<u32>, page: &PageRequest<u32>) -> Vec<u32> {
        let behind = all.iter().filter(|number| page.after.is_none_or(|after| **number > after));
        behind.take(page.look_up() as usize).copied().collect()
    }

    #[test]
    fn query_is_read_strictly() {
        assert_eq!(page(""), Ok(PageRequest { after: None, limit: LIMIT_DEFAULT }));
        assert_eq!(page("limit=200").unwrap().limit, 200);
        assert_eq!(page(&format!("cursor={}", encode("7", "n"))).unwrap().after, Some(7));
        for query in ["limit=0", "limit=201", "limit=x", "limit=1&limit=2", "cursor=!", "cursor=", "other=1", "limit="]
        {
            assert!(page(query).is_err(), "{query}");
        }
        assert!(page(&format!("cursor={}", encode("7", "other"))).is_err(), "a cursor of another list");
    }

    proptest! {
        #[test]
        fn pages_together_are_the_list_even_while_it_changes(
            all in prop::collection::btree_set(0..500_u32, 0..120),
            limit in 1..40_u32,
            changes in prop::collection::vec((0..500_u32, any::<bool>()), 0..20),
        ) {
            let (mut list, mut stayed) = (all.clone(), all);
            let mut changes = changes.into_iter();
            let (mut seen, mut query) = (Vec::new(), format!("limit={limit}"));
            loop {
                let page = page(&query).unwrap();
                let (rows, next) = page.cut(look_up(&list, &page), "n", ToString::to_string, |number| *number);
                prop_assert!(rows.len() <= limit as usize);
                seen.extend(rows);
                let Some(next) = next else { break };
                query = format!("limit={limit}&cursor={next}");
                if let Some((number, is_added)) = changes.next() {
                    if is_added {
                        list.insert(number);
                    } else {
                        list.remove(&number);
                        stayed.remove(&number);
                    }
                }
            }
            prop_assert!(seen.is_sorted_by(|left, right| left < right), "in order, and none twice");
            for number in &stayed {
                prop_assert!(seen.contains(number), "{number} was there all along");
            }
        }

        #[test]
        fn any_cursor_is_answered(cursor in ".{0,40}") {
            let query: String = form_urlencoded::byte_serialize(cursor.as_bytes()).collect();
            if let Ok(page) = page(&format!("cursor={query}")) {
                prop_assert!(page.after.is_some());
            }
        }
    }
}
