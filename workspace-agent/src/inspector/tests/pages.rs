//! Pages of hostile apps' exchanges.

use super::super::exchange::{Exchange, Field, Kept, ResponseHead, Way};
use super::super::filter::Filter;
use super::super::samples;
use super::super::{har, page};

/// Text that would be markup or script, were it not escaped; each part of an exchange has one with a number of its own.
fn hostile(number: usize) -> String {
    format!("</pre></textarea></script>'\"><script>x{number}()</script><img src=x onerror=x{number}()>")
}

fn hostile_exchange() -> Exchange {
    let mut exchange = samples::failed();
    exchange.request.method = hostile(1).into();
    exchange.request.target = format!("/{}", hostile(2)).into();
    exchange.request.fields.push(Field::new("x-hostile", hostile(3).as_bytes()));
    exchange.request.fields.push(Field::new(&hostile(4), b"value"));
    exchange.request.fields.retain(|field| &*field.name != "x-forwarded-for");
    exchange.request.fields.push(Field::new("x-forwarded-for", hostile(5).as_bytes()));
    let text = hostile(6);
    exchange.request_body = Kept { bytes: text.clone().into_bytes(), length: text.len() as u64 };
    let fields = vec![Field::new("content-type", format!("text/html{}", hostile(7)).as_bytes())];
    exchange.response = Some(ResponseHead { status: 500, reason: hostile(8).into(), minor: 1, fields });
    let text = hostile(9);
    exchange.response_body = Kept { bytes: text.clone().into_bytes(), length: text.len() as u64 };
    exchange
}

/// Returns the markup of a page: all that is between `<` and `>`.
fn tags(page: &str) -> Vec<&str> {
    page.split('<').skip(1).filter_map(|rest| rest.split('>').next()).collect()
}

#[test]
fn content_of_a_hostile_app_is_text_on_every_page() {
    let exchange = hostile_exchange();
    let filter = Filter { text: hostile(10), ..Filter::default() };
    let pages = [
        page::row(&exchange, &filter),
        page::list(vec![page::row(&exchange, &filter)], &filter, 0),
        page::exchange(&exchange, &filter, 0),
        page::edit(&exchange, &filter, 0),
        page::edit_again(&exchange, &filter, &super::super::replay::form(&exchange), &hostile(11)),
    ];
    for page in &pages {
        for tag in tags(page) {
            let name = tag.split([' ', '/']).find(|part| !part.is_empty()).unwrap_or_default();
            assert!(!tag.contains("onerror") || !tag.contains("x="), "{tag}");
            assert!(
                name != "img"
                    && !(name == "script" && !tag.contains("src=\"/assets/inspector.js\"") && tag != "/script"),
                "{tag}"
            );
        }
        assert!(!page.contains("<script>") && !page.contains("<img") && !page.contains("</pre></textarea>"), "{page}");
    }
    for number in [1, 2, 3, 4, 5, 6, 7, 8, 9] {
        assert!(pages[2].contains(&format!("x{number}()")), "{number} is shown, as text");
    }
}

#[test]
fn messages_of_a_hostile_app_are_text() {
    let mut exchange = samples::socket();
    for message in &mut exchange.messages {
        (message.frame.opcode, message.frame.kept) = (1, hostile(1).into_bytes());
    }
    exchange.push(Way::Outward, b"");
    let page = page::exchange(&exchange, &Filter::default(), 0);
    assert!(page.contains("x1()") && !page.contains("<script>") && !page.contains("<img"));
}

#[test]
fn archive_of_a_hostile_app_is_json_and_has_no_credentials() {
    let exchange = hostile_exchange();
    let file = format!("{}{}{}", har::head(), har::entry(&exchange), har::TAIL);
    let read: serde_json::Value = serde_json::from_str(&file).expect("JSON");
    assert_eq!(read["log"]["entries"][0]["response"]["content"]["text"], hostile(9));
    assert!(!file.contains("s3cr3t") && file.contains("[redacted]"));
}

#[test]
fn pages_run_no_script_but_their_own_and_are_not_framed() {
    let mut headers = http::HeaderMap::new();
    page::protect(&mut headers);
    let policy = headers["content-security-policy"].to_str().expect("text");
    for part in
        ["default-src 'none'", "script-src 'self';", "frame-ancestors 'none'", "form-action 'self'", "base-uri 'none'"]
    {
        assert!(policy.contains(part), "{part}");
    }
    assert!(!policy.contains("unsafe"));
    let page = page::list(vec![page::row(&samples::fine(), &Filter::default())], &Filter::default(), 0);
    let inline = tags(&page).into_iter().find(|tag| tag.contains(" style=") || tag.contains(" on") || *tag == "style");
    assert_eq!(inline, None);
    for name in page.split("/assets/").skip(1).filter_map(|rest| rest.split('"').next()) {
        assert!(page::asset(name, &http::HeaderMap::new()).is_some(), "{name}");
    }
}
