use super::*;

#[test]
fn keys_are_drawn_read_back_and_nothing_else_is_one() {
    let key = RunKey::generate().unwrap();
    assert_eq!(key.as_str().parse(), Ok(key.clone()));
    assert_eq!(serde_json::from_str::<RunKey>(&serde_json::to_string(&key).unwrap()).unwrap(), key);
    assert_ne!(CacheKey::generate(), CacheKey::generate());
    for text in [
        "",
        "abc",
        "0123456789ABCDEF0123456789ABCDEF",
        "../3456789abcdef0123456789abcdef",
        "0123456789abcdef0123456789abcdef0",
    ] {
        assert_eq!(text.parse::<CacheKey>(), Err(BadKey), "{text}");
        assert!(serde_json::from_value::<RunKey>(text.into()).is_err());
    }
}

#[test]
fn run_is_stored_with_what_is_known_of_it() {
    let run = RunRef { id: "7".to_owned(), child: None };
    assert_eq!(serde_json::to_string(&run).unwrap(), r#"{"id":"7"}"#);
    let with_child = RunRef { child: Some("8".to_owned()), ..run };
    let stored = serde_json::to_string(&with_child).unwrap();
    assert_eq!(serde_json::from_str::<RunRef>(&stored).unwrap(), with_child);
}
