use super::*;
use crate::object;

fn account(name: &str) -> ObjectKey {
    object::key("ns", name, "", "ServiceAccount")
}

fn names(book: &ObjectBook) -> Vec<String> {
    book.objects().into_iter().map(|object| object.name).collect()
}

/// Makes a book in which every object is in the state that it is called after.
fn book() -> ObjectBook {
    let states = ["kept", "not", "ours", "unknown"];
    let mut book = ObjectBook::new(&states.map(|name| reference(&account(name), "v1", "u")));
    book.kept(&account("kept"));
    book.not(&account("not"));
    book.ours(&account("ours"), "w");
    book
}

#[test]
fn what_is_there_or_may_be_is_the_environments() {
    let book = book();
    assert_eq!(names(&book), ["kept", "ours", "unknown"]);
    assert_eq!(book.gone(), BTreeSet::from([account("not")]));
    assert_eq!(book.unknown(), [account("unknown")], "this is still to be looked at");
    assert_eq!(book.namespaces(), BTreeSet::from(["ns".to_owned()]));
    assert!(ObjectBook::default().namespaces().is_empty());
}

#[test]
fn what_is_to_go_is_all_of_it_but_what_is_kept() {
    let book = book();
    let to_go: Vec<_> = book.keys().into_iter().filter(|key| book.is_to_go(key)).map(|key| key.name).collect();
    assert_eq!(to_go, ["ours", "unknown"]);
    assert!(book.keeps_in("ns") && !book.keeps_in("other") && !book.is_to_go(&account("stranger")));
}

#[test]
fn what_was_gone_and_is_about_to_be_made_again_may_be_there() {
    let mut book = book();
    for name in ["kept", "not", "ours", "unknown"] {
        book.add(&account(name), "");
    }
    assert_eq!(names(&book), ["kept", "not", "ours", "unknown"]);
    assert_eq!(book.gone(), BTreeSet::new());
    assert_eq!(book.unknown(), [account("not"), account("unknown")]);
}

#[test]
fn object_is_named_with_what_is_known_of_it_last() {
    let mut book = book();
    book.add(&account("ours"), "v2");
    assert_eq!(book.reference(&account("ours")), reference(&account("ours"), "v2", "w"));
    assert_eq!(book.reference(&account("unknown")), reference(&account("unknown"), "v1", "u"));
    assert_eq!(book.reference(&account("stranger")), reference(&account("stranger"), "", ""));
}
