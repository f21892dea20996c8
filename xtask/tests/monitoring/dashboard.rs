//! The dashboard for Grafana: the questions of operators first, then a panel for each family of metrics.

use serde_json::{Value, json};

use super::source::{Metric, Question, Source};

/// Columns of the grid.
const COLUMNS: usize = 24;

/// Width and height of a panel.
const PANEL: [usize; 2] = [8, 7];

/// Lays panels out from a row of the grid on; returns the row below.
fn lay_out(panels: &mut Vec<Value>, made: Vec<Value>, from: usize) -> usize {
    let [width, height] = PANEL;
    let in_a_row = COLUMNS / width;
    let count = made.len();
    for (place, mut panel) in made.into_iter().enumerate() {
        panel["gridPos"] = json!({
            "x": place % in_a_row * width, "y": from + place / in_a_row * height, "w": width, "h": height,
        });
        panel["id"] = (panels.len() + 1).into();
        panels.push(panel);
    }
    from + count.div_ceil(in_a_row) * height
}

fn panel(title: &str, about: &str, query: &str, unit: &str, legend: &str) -> Value {
    json!({
        "type": "timeseries",
        "title": title,
        "description": about,
        "datasource": { "type": "prometheus", "uid": "${datasource}" },
        "fieldConfig": { "defaults": { "unit": unit, "min": 0 }, "overrides": [] },
        "options": { "legend": { "displayMode": "list", "placement": "bottom" }, "tooltip": { "mode": "multi" } },
        "targets": [{ "refId": "A", "expr": query, "legendFormat": legend }],
    })
}

fn of_question(question: &Question) -> Value {
    let Question { ask, query, unit, legend } = question;
    panel(ask, "", query, unit, legend.as_deref().unwrap_or("__auto"))
}

fn of_metric(metric: &Metric) -> Value {
    let Metric { name, kind, help } = metric;
    let is_bytes = name.contains("_bytes");
    let (query, unit) = match kind.as_str() {
        "counter" => (format!("rate({name}[$__rate_interval])"), if is_bytes { "Bps" } else { "cps" }),
        "histogram" => (
            format!("histogram_quantile(0.95, sum without (instance, job) (rate({name}_bucket[$__rate_interval])))"),
            "s",
        ),
        "gauge" => (name.clone(), if is_bytes { "bytes" } else { "short" }),
        other => panic!("{name}: {other}"),
    };
    panel(name, help, &query, unit, "__auto")
}

/// Writes the dashboard.
pub(crate) fn json(source: &Source) -> String {
    let mut panels = Vec::new();
    let below = lay_out(&mut panels, source.questions.iter().map(of_question).collect(), 0);
    panels.push(json!({
        "type": "row", "title": "All metrics", "collapsed": false, "panels": [], "id": panels.len() + 1,
        "gridPos": { "x": 0, "y": below, "w": COLUMNS, "h": 1 },
    }));
    lay_out(&mut panels, source.metrics.iter().map(of_metric).collect(), below + 1);
    let dashboard = json!({
        "title": "Workspace Gateway",
        "uid": "workspace-gateway",
        "schemaVersion": 39,
        "editable": true,
        "refresh": "30s",
        "time": { "from": "now-3h", "to": "now" },
        "templating": { "list": [
            { "name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source" },
        ] },
        "panels": panels,
    });
    let mut text = serde_json::to_string_pretty(&dashboard).expect("JSON");
    text.push('\n');
    text
}
