//! Decides which workspaces of a cluster are orphans.

use std::collections::HashSet;

use super::OrphanList;
use gateway_types::Zone;
use tunnel_proto::orphans::Marked;

/// Names and namespaces of the workspaces of which a gateway has a record.
pub(super) type Recorded = HashSet<(String, String)>;

/// Returns the hosts of a workspace of the gateway whose zone it is, as its objects say them.
pub(super) fn host_template(workspace: &str, zone: &Zone) -> String {
    format!("{{port}}-{workspace}.{zone}")
}

/// Returns the workspaces of this gateway that are not recorded. What another gateway made, or nothing says which, is none.
pub(super) fn compare(marked: Vec<Marked>, recorded: &Recorded, zone: &Zone) -> OrphanList {
    let mut list = OrphanList::default();
    for one in marked {
        if recorded.contains(&(one.workspace.clone(), one.namespace.clone())) {
            continue;
        }
        if one.host_template == host_template(&one.workspace, zone) {
            list.orphans.push(one);
        } else {
            list.others += 1;
        }
    }
    list.orphans.sort_by(|one, other| (&one.namespace, &one.workspace).cmp(&(&other.namespace, &other.workspace)));
    list
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn zone() -> Zone {
        "ws.example".parse().expect("a zone")
    }

    fn marked(workspace: &str, namespace: &str, zone: &str) -> Marked {
        Marked {
            workspace: workspace.to_owned(),
            namespace: namespace.to_owned(),
            host_template: format!("{{port}}-{workspace}.{zone}"),
            ..Marked::default()
        }
    }

    fn recorded(pairs: &[(&str, &str)]) -> Recorded {
        pairs.iter().map(|(name, namespace)| ((*name).to_owned(), (*namespace).to_owned())).collect()
    }

    #[test]
    fn orphan_has_our_hosts_and_no_record_in_its_namespace() {
        let all = vec![
            marked("lost", "ws-lost", "ws.example"),
            marked("known", "ws-known", "ws.example"),
            // The workspace of that name is elsewhere by now.
            marked("known", "old-known", "ws.example"),
            marked("theirs", "ws-theirs", "other.example"),
            Marked { host_template: String::new(), ..marked("unsaid", "ws-unsaid", "ws.example") },
            Marked { host_template: "{port}-known.ws.example".into(), ..marked("forged", "ws-x", "ws.example") },
        ];
        let list = compare(all, &recorded(&[("known", "ws-known"), ("absent", "ws-absent")]), &zone());
        let names: Vec<_> = list.orphans.iter().map(|one| (one.workspace.as_str(), one.namespace.as_str())).collect();
        assert_eq!(names, [("known", "old-known"), ("lost", "ws-lost")]);
        assert_eq!(list.others, 3);
    }

    proptest! {
        #[test]
        fn what_is_recorded_or_anothers_is_never_an_orphan(
            found in proptest::collection::vec((0..4_u8, 0..3_u8, any::<bool>()), 0..12),
            known in proptest::collection::vec((0..4_u8, 0..3_u8), 0..8),
        ) {
            let name = |number: u8| format!("w{number}");
            let records: Recorded = known.iter().map(|(a, b)| (name(*a), name(*b))).collect();
            let all: Vec<Marked> = found
                .iter()
                .map(|(a, b, ours)| marked(&name(*a), &name(*b), if *ours { "ws.example" } else { "else.example" }))
                .collect();
            let list = compare(all.clone(), &records, &zone());
            for one in &list.orphans {
                prop_assert!(!records.contains(&(one.workspace.clone(), one.namespace.clone())));
                prop_assert!(one.host_template.ends_with(".ws.example"));
            }
            let kept = all.iter().filter(|one| records.contains(&(one.workspace.clone(), one.namespace.clone()))).count();
            prop_assert_eq!(list.orphans.len() + list.others + kept, all.len());
        }
    }
}
