//! Line charts as inline SVG: colours come from the page, so that they suit light and dark.

/// Size of the drawing; it is scaled to the width of the page, on a phone too, so letters are large in it.
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 68.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 34.0;
/// Distance from the right edge within which words of marks end at it.
const EDGE: f64 = 24.0;

/// One line.
#[derive(Clone, Debug)]
pub struct Series {
    /// Name in the legend.
    pub name: &'static str,
    /// Class that gives it its colour: `one` to `four`.
    pub class: &'static str,
    /// Points, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// Scale of one direction of the chart.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Its smallest value.
    pub from: f64,
    /// Its largest value.
    pub to: f64,
    /// Whether equal steps are equal factors.
    pub is_logarithmic: bool,
    /// Places and words of the marks.
    pub ticks: Vec<(f64, String)>,
}

impl Axis {
    /// Returns where a value lies, 0 to 1.
    fn place(&self, value: f64) -> f64 {
        let (from, to, value) = if self.is_logarithmic {
            (self.from.max(1e-9).log10(), self.to.max(1e-9).log10(), value.max(1e-9).log10())
        } else {
            (self.from, self.to, value)
        };
        if to > from { ((value - from) / (to - from)).clamp(0.0, 1.0) } else { 0.0 }
    }

    /// Makes an axis from zero on, with about five marks.
    #[must_use]
    pub fn linear(largest: f64, show: impl Fn(f64) -> String) -> Self {
        let step = step(largest.max(1e-9) / 5.0);
        let marks = (largest / step).ceil().max(1.0);
        let mut ticks = Vec::new();
        let mut mark = 0.0;
        while mark <= marks {
            ticks.push((mark * step, show(mark * step)));
            mark += 1.0;
        }
        Self { from: 0.0, to: marks * step, is_logarithmic: false, ticks }
    }

    /// Makes an axis whose marks are at 1, 2 and 5 times powers of ten, or at powers of ten alone if these are many.
    #[must_use]
    pub fn logarithmic(smallest: f64, largest: f64, show: impl Fn(f64) -> String) -> Self {
        let (smallest, largest) = (smallest.max(1.0), largest.max(smallest).max(1.0));
        let factors: &[f64] = if largest / smallest > 200.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let mut marks = Vec::new();
        let mut power = 10_f64.powf(smallest.log10().floor());
        while power <= largest * 10.0 {
            marks.extend(factors.iter().map(|factor| factor * power));
            power *= 10.0;
        }
        let from = marks.iter().copied().filter(|mark| *mark <= smallest).fold(1.0, f64::max);
        let to = marks.iter().copied().find(|mark| *mark >= largest && *mark > from).unwrap_or(largest);
        let within = marks.into_iter().filter(|mark| *mark >= from && *mark <= to);
        Self { from, to, is_logarithmic: true, ticks: within.map(|mark| (mark, show(mark))).collect() }
    }
}

/// Returns 1, 2 or 5 times a power of ten that is at least `least`.
fn step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * power).find(|step| *step >= least).unwrap_or(power * 10.0)
}

/// Draws lines with their legend.
#[must_use]
pub fn lines(title: &str, x: &Axis, y: &Axis, series: &[Series]) -> String {
    let across = |value: f64| LEFT + x.place(value) * (WIDTH - LEFT - RIGHT);
    let up = |value: f64| HEIGHT - BOTTOM - y.place(value) * (HEIGHT - TOP - BOTTOM);
    let mut out = format!(
        "<figure>\n<figcaption>{title}</figcaption>\n<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">\n"
    );
    for (value, words) in &y.ticks {
        let at = up(*value);
        out.push_str(&format!(
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\n",
            WIDTH - RIGHT
        ));
        out.push_str(&format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{words}</text>\n",
            LEFT - 6.0,
            at + 5.0
        ));
    }
    for (value, words) in &x.ticks {
        let at = across(*value);
        let (from, to) = (HEIGHT - BOTTOM, HEIGHT - BOTTOM + 5.0);
        out.push_str(&format!(
            "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{from:.1}\" y2=\"{to:.1}\"/>\n"
        ));
        // The last mark is at the edge of the drawing, which would cut its words.
        let anchor = if at > WIDTH - RIGHT - EDGE { "end" } else { "middle" };
        let end = if anchor == "end" { WIDTH - 1.0 } else { at };
        out.push_str(&format!(
            "<text x=\"{end:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{words}</text>\n",
            HEIGHT - 10.0
        ));
    }
    for line in series {
        let points: Vec<String> =
            line.points.iter().map(|(right, high)| format!("{:.1},{:.1}", across(*right), up(*high))).collect();
        match points.as_slice() {
            [] => {}
            // A line of one point would not be seen.
            [only] => {
                let (cx, cy) = only.split_once(',').unwrap_or(("0", "0"));
                out.push_str(&format!("<circle class=\"{}\" cx=\"{cx}\" cy=\"{cy}\" r=\"3\"/>\n", line.class));
            }
            _ => {
                out.push_str(&format!("<polyline class=\"{}\" points=\"{}\"/>\n", line.class, points.join(" ")));
            }
        }
    }
    out += "</svg>\n<p class=\"legend\">";
    for line in series {
        out.push_str(&format!("<span class=\"{}\">{}</span> ", line.class, line.name));
    }
    out + "</p>\n</figure>\n"
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn axes_hold_their_values_and_have_few_marks(small in 1.0_f64..1e9, factor in 1.0_f64..1e6) {
            let large = small * factor;
            for axis in [Axis::linear(large, |_| String::new()), Axis::logarithmic(small, large, |_| String::new())] {
                prop_assert!(axis.from <= small && axis.to >= large * 0.999_999, "{axis:?}");
                prop_assert!(axis.ticks.len() >= 2 && axis.ticks.len() <= 12, "{axis:?}");
                prop_assert!(axis.place(small) <= axis.place(large));
            }
        }
    }

    #[test]
    fn nothing_measured_draws_an_empty_chart() {
        let axis = Axis::linear(0.0, |value| format!("{value}"));
        let chart = lines("empty", &axis, &axis, &[Series { name: "a", class: "one", points: Vec::new() }]);
        assert!(chart.contains("<svg") && !chart.contains("NaN") && !chart.contains("polyline"), "{chart}");
    }
}
