//! Where a browser arrives after sign-in, for any text.

use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn any_return_parameter_leaves_the_browser_on_the_same_host(text in "\\PC{0,20}|[/\\\\.:@?#\t\r\n a]{0,10}") {
        let it = fixture();
        let mut browser = Browser::default();
        browser.sign_in(&it);
        let first = browser.visit(&it, HOST, "/", it.now);
        let (head, tail) = location(&first).split_once("return=%2F&").unwrap();
        let encoded: String = form_urlencoded::byte_serialize(text.as_bytes()).collect();
        let callback = browser.visit(&it, PUBLIC, &format!("{head}return={encoded}&{tail}"), it.now);
        let last = browser.visit(&it, HOST, location(&callback), it.now);
        let arrived = location(&last);
        prop_assert!(arrived == text || arrived == "/");
        prop_assert!(arrived.starts_with('/') && !arrived.starts_with("//") && !arrived.starts_with("/\\"));
        prop_assert!(HeaderValue::from_str(arrived).is_ok());
    }

    #[test]
    fn path_and_query_come_back_byte_for_byte(text in "/[!-\"$-.0-\\[\\]-~]{0,20}(\\?[!-\"$-~]{0,30})?") {
        let it = fixture();
        let mut browser = Browser::default();
        browser.sign_in(&it);
        let Ok(uri) = text.parse::<Uri>() else { return Ok(()) };
        let wanted = uri.path_and_query().unwrap().as_str().to_owned();
        let callback = browser.up_to_callback(&it, HOST, &text);
        let last = browser.visit(&it, HOST, &callback, it.now);
        prop_assert_eq!(location(&last), wanted);
    }
}
