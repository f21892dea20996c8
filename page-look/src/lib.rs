//! One look for every page that gateway and agent make: style, logo, icon, and the frame of a page that stands alone.
//!
//! * [`STYLE`], [`LOGO`], [`ICON`]: what a page that loads files from its own origin sends there. The dashboard and the terminal do.
//! * [`LonePage`]: a page that loads nothing: failures, sign-in, confirmations. Its style is in it, and its content security policy
//!   names that style by its hash.
//!
//! `assets/look.css` has the colours once, as variables for both schemes, and what headings, forms, tables of facts and cards look
//! like; pages of their own kind add to it and repeat none of it.
//!
//! Colours meet WCAG 2.2 AA in both schemes. No I/O, no dependency, so that the smallest agent can have it.

/// Name of the product, in titles and headers.
pub const PRODUCT: &str = "Workspace Gateway";

/// Style of all pages, without a line break at its end.
pub const STYLE: &str = include_str!("../assets/look.css");

/// The logo, for a header; it takes the style's colours.
pub const LOGO: &str = include_str!("../assets/logo.svg");

/// The icon, an image of its own.
pub const ICON: &str = include_str!("../assets/icon.svg");

/// Element of a head that has the icon in itself. A content security policy has to allow `img-src data:`.
pub const ICON_LINK: &str = concat!(
    "<link rel=\"icon\" href=\"data:image/svg+xml,%3Csvg xmlns=%22http://www.w3.org/2000/svg%22 viewBox=%220 0 24 24%22%3E",
    "%3Crect width=%2224%22 height=%2224%22 rx=%225%22 fill=%22%232a4fc4%22/%3E",
    "%3Cpath d=%22M6 19v-6.5a6 6 0 0 1 12 0V19M10 19v-5.2a2 2 0 0 1 4 0V19M4.5 19h15%22 fill=%22none%22 stroke=%22%23fff%22 ",
    "stroke-width=%221.6%22 stroke-linecap=%22round%22 stroke-linejoin=%22round%22/%3E%3C/svg%3E\">"
);

/// A page that stands alone: one card below the logo.
#[derive(Clone, Copy, Debug)]
pub struct LonePage<'a> {
    /// Plain text that needs no escaping in HTML.
    pub title: &'a str,
    /// HTML of the head, beside title, style and icon.
    pub head: &'a str,
    /// HTML below the heading.
    pub body: &'a str,
    /// Address of the gateway's first page, escaped for an attribute; without one the logo is no link.
    pub home: Option<&'a str>,
}

impl LonePage<'_> {
    /// Writes the page. Its policy has to name [`STYLE`] by its hash, and to allow `img-src data:`.
    #[must_use]
    pub fn to_html(self) -> String {
        let Self { title, head, body, home } = self;
        let brand = match home {
            Some(home) => format!("<a class=\"brand\" href=\"{home}\">{LOGO}{PRODUCT}</a>"),
            None => format!("<span class=\"brand\">{LOGO}{PRODUCT}</span>"),
        };
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"robots\" content=\"noindex\">\n\
             <title>{title}</title>\n{ICON_LINK}\n<style>{STYLE}</style>\n{head}</head>\n<body class=\"alone\">\n\
             <header>{brand}</header>\n<main>\n<h1>{title}</h1>\n{body}</main>\n</body>\n</html>\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn style_cannot_end_its_element_and_loads_nothing() {
        for forbidden in ["</", "url(", "@import", "expression"] {
            assert!(!STYLE.contains(forbidden), "{forbidden}");
        }
    }

    #[test]
    fn icon_of_the_head_is_the_icon() {
        let coded = ICON.trim_end().replace('"', "%22").replace('<', "%3C").replace('>', "%3E").replace('#', "%23");
        assert_eq!(ICON_LINK, format!("<link rel=\"icon\" href=\"data:image/svg+xml,{coded}\">"));
    }

    #[test]
    fn page_has_the_logo_and_leads_home_where_that_is_known() {
        let page = LonePage { title: "Gone", head: "", body: "<p>x</p>", home: None };
        assert!(page.to_html().contains("<h1>Gone</h1>\n<p>x</p></main>") && !page.to_html().contains("<a "));
        let home = LonePage { home: Some("https://gw.example/"), ..page };
        assert!(home.to_html().contains("<a class=\"brand\" href=\"https://gw.example/\">"));
    }
}
