//! Chooses the metrics format that a scraper wants, and converts OpenMetrics to the older one.

/// Media type of OpenMetrics 1.0.
const OPEN_METRICS: &str = "application/openmetrics-text";

/// Format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposition {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus text format 0.0.4, for all who do not ask for the other one.
    Text,
}

impl Exposition {
    /// Reads what a request accepts (RFC 9110, section 12.5.1). OpenMetrics is for those who name it and do not prefer
    /// plain text.
    pub fn accepted(accept: &str) -> Self {
        let quality = |part: &str| {
            let weight = part.split(';').skip(1).find_map(|parameter| parameter.trim().strip_prefix("q="));
            weight.map_or(1.0, |weight| weight.trim().parse::<f32>().unwrap_or(0.0))
        };
        let best = |names: &[&str]| {
            let named = accept.split(',').filter(|part| {
                let media = part.split(';').next().unwrap_or_default().trim();
                names.iter().any(|name| media.eq_ignore_ascii_case(name))
            });
            named.map(quality).fold(0.0_f32, f32::max)
        };
        let open = best(&[OPEN_METRICS]);
        if open > 0.0 && open >= best(&["text/plain", "text/*"]) { Self::OpenMetrics } else { Self::Text }
    }

    /// Returns the content type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Converts OpenMetrics to this format.
    pub fn of(self, open_metrics: String) -> String {
        match self {
            Self::OpenMetrics => open_metrics,
            Self::Text => text(&open_metrics),
        }
    }
}

/// Makes text format 0.0.4: metadata use the names of the samples, which for counters end in `_total`; units and the
/// end marker have no lines there.
fn text(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help = None;
    for line in open_metrics.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("HELP"), Some(name), said) => help = Some((name, said.unwrap_or_default())),
            (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                let (suffix, kind) = match kind {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    "unknown" => ("", "untyped"),
                    kind => ("", kind),
                };
                if let Some((_, said)) = help.take().filter(|(of, _)| *of == name) {
                    text += &format!("# HELP {name}{suffix} {said}\n");
                }
                text += &format!("# TYPE {name}{suffix} {kind}\n");
            }
            (Some("#"), ..) => {}
            _ => {
                text += line;
                text.push('\n');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scraper_gets_what_it_asks_for() {
        let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                          application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,\
                          text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (accept, expected) in [
            (prometheus, Exposition::OpenMetrics),
            ("application/openmetrics-text", Exposition::OpenMetrics),
            ("Application/OpenMetrics-Text; version=1.0.0, */*", Exposition::OpenMetrics),
            ("application/openmetrics-text;q=0.5,text/plain", Exposition::Text),
            ("application/openmetrics-text;q=0", Exposition::Text),
            ("application/openmetrics-text;q=x", Exposition::Text),
            ("text/plain", Exposition::Text),
            ("text/html,*/*;q=0.8", Exposition::Text),
            ("*/*", Exposition::Text),
            ("", Exposition::Text),
        ] {
            assert_eq!(Exposition::accepted(accept), expected, "{accept}");
        }
    }

    #[test]
    fn older_text_names_metadata_as_it_names_samples() {
        let open = "# HELP a_seconds Time.\n# TYPE a_seconds histogram\n# UNIT a_seconds seconds\na_seconds_sum 0.0\n\
                    # HELP b Things \\\\ more.\n# TYPE b counter\nb_total{x=\"1 2\"} 3\n# HELP c.\n# TYPE c unknown\nc 1\n\
                    # HELP d Which.\n# TYPE d info\nd_info{v=\"1\"} 1\n# EOF\n";
        let text = "# HELP a_seconds Time.\n# TYPE a_seconds histogram\na_seconds_sum 0.0\n\
                    # HELP b_total Things \\\\ more.\n# TYPE b_total counter\nb_total{x=\"1 2\"} 3\n# TYPE c untyped\nc 1\n\
                    # HELP d_info Which.\n# TYPE d_info gauge\nd_info{v=\"1\"} 1\n";
        assert_eq!(Exposition::Text.of(open.to_owned()), text);
        assert_eq!(Exposition::OpenMetrics.of(open.to_owned()), open);
    }
}
