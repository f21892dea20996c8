"""Judges an hour of the suite `soak` by what Prometheus and the suite wrote down, prints checks, and makes a drawing.

    soak_report.py --prometheus http://127.0.0.1:9090 --agent agent.csv --events events.txt --drawing soak.svg

Of `agent.csv`, each line is a time in seconds, resident bytes and descriptors of one agent; of `events.txt`, a time in milliseconds and
what happened then. The replica `one` was not restarted.
"""

import argparse
import json
import statistics
import urllib.parse
import urllib.request

MIB = 1 << 20
# Growth that an hour may have: memory above what was there, and descriptors.
MEMORY_GROWTH = 0.10
MEMORY_GROWTH_BYTES = 8 * MIB
DESCRIPTORS_GROWTH = 50


def query_range(base, expression, begin, end, step):
    """Points of the first series, as pairs of seconds since `begin` and value."""
    asked = urllib.parse.urlencode({"query": expression, "start": begin, "end": end, "step": step})
    with urllib.request.urlopen(f"{base}/api/v1/query_range?{asked}", timeout=30) as answer:
        result = json.load(answer)["data"]["result"]
    points = [(at - begin, float(value)) for at, value in (result[0]["values"] if result else [])]
    return [(at, value) for at, value in points if value == value]


def slope(points):
    """Growth of the regression line over all points, in their unit, from the first to the last."""
    xs, ys = zip(*points)
    return statistics.linear_regression(xs, ys).slope * (xs[-1] - xs[0])


def settled(points, length):
    """Without the first tenth, in which caches and pools fill."""
    return [point for point in points if point[0] >= length / 10]


def check(what, holds, detail):
    print(f"{'ok' if holds else 'FAIL'} {what} ({detail})")
    return holds


def judge_growth(who, unit, points, length, scale, bound):
    points = settled(points, length)
    if len(points) < 10:
        return check(f"{who}: {unit} were measured", False, f"{len(points)} points")
    grown, began, last = slope(points), statistics.median(v for _, v in points[:6]), statistics.median(v for _, v in points[-6:])
    detail = f"{began / scale:.1f} at first, {last / scale:.1f} at last, slope {grown / scale:+.1f}, most {max(v for _, v in points) / scale:.1f}"
    return check(f"{who}: {unit} stay where they were", grown <= bound(began), detail)


class Drawing:
    """Rows of lines over one axis of time, as an SVG that any browser shows, also in the dark."""

    WIDTH, HEIGHT, LEFT, GAP, TOP = 960, 130, 70, 46, 40
    COLOURS = ("#0969da", "#bc4c00", "#1a7f37", "#8250df")

    def __init__(self, length, marks):
        self.length, self.marks, self.rows = max(length, 1), marks, []

    def add(self, title, lines):
        self.rows.append((title, {name: points for name, points in lines.items() if points}))

    def x(self, at):
        return self.LEFT + at / self.length * (self.WIDTH - self.LEFT - 20)

    def row(self, number, title, lines):
        top = self.TOP + number * (self.HEIGHT + self.GAP)
        most = max((value for points in lines.values() for _, value in points), default=1) or 1
        y = lambda value: top + self.HEIGHT - value / (most * 1.1) * self.HEIGHT
        out = [f'<text x="{self.LEFT}" y="{top - 8}" font-weight="600">{title}</text>']
        for value in (0, most / 2, most):
            out.append(f'<line x1="{self.LEFT}" x2="{self.WIDTH - 20}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#8884"/>')
            out.append(f'<text x="{self.LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.3g}</text>')
        for at, what in self.marks:
            out.append(f'<line x1="{self.x(at):.1f}" x2="{self.x(at):.1f}" y1="{top}" y2="{top + self.HEIGHT}" stroke="#d1242f88" stroke-dasharray="3 3"><title>{what}</title></line>')
        for index, (name, points) in enumerate(lines.items()):
            colour = self.COLOURS[index % len(self.COLOURS)]
            path = " ".join(f"{self.x(at):.1f},{y(value):.1f}" for at, value in points)
            out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
            out.append(f'<text x="{self.WIDTH - 20 - 110 * (len(lines) - 1 - index)}" y="{top - 8}" text-anchor="end" style="fill:{colour}">{name}</text>')
        return out

    def svg(self):
        height = self.TOP + len(self.rows) * (self.HEIGHT + self.GAP) + 10
        out = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.WIDTH} {height}" font-family="system-ui, sans-serif" font-size="12">',
            "<style>svg{background:#fff}text{fill:#1f2328}@media(prefers-color-scheme:dark){svg{background:#0d1117}text{fill:#e6edf3}}</style>",
        ]
        for number, (title, lines) in enumerate(self.rows):
            out += self.row(number, title, lines)
        for minute in range(0, int(self.length / 60) + 1, 10 if self.length > 1200 else 1):
            out.append(f'<text x="{self.x(minute * 60):.1f}" y="{height - 22}" text-anchor="middle">{minute} min</text>')
        return "\n".join([*out, "</svg>", ""])


def main():
    parser = argparse.ArgumentParser()
    for name in ("prometheus", "agent", "events", "drawing"):
        parser.add_argument(f"--{name}", required=True)
    asked = parser.parse_args()
    events = [line.split(" ", 1) for line in open(asked.events, encoding="utf-8").read().splitlines()]
    begin, end = int(events[0][0]) / 1000, int(events[-1][0]) / 1000
    length = end - begin
    step = max(5, int(length / 300))
    agent = [tuple(map(float, line.split())) for line in open(asked.agent, encoding="utf-8") if line.count(" ") == 2]
    agent_memory = [(at - begin, memory) for at, memory, _ in agent]
    agent_files = [(at - begin, files) for at, _, files in agent]
    series = lambda expression: query_range(asked.prometheus, expression, begin, end, step)
    memory = {name: series(f'process_resident_memory_bytes{{replica="{name}"}}') for name in ("one", "two", "three")}
    files = {name: series(f'process_open_fds{{replica="{name}"}}') for name in ("one", "two", "three")}

    by_memory = lambda began: began * MEMORY_GROWTH + MEMORY_GROWTH_BYTES
    good = [
        judge_growth("the gateway", "MiB of memory", memory["one"], length, MIB, by_memory),
        judge_growth("the gateway", "descriptors", files["one"], length, 1, lambda _: DESCRIPTORS_GROWTH),
        judge_growth("an agent", "MiB of memory", agent_memory, length, MIB, by_memory),
        judge_growth("an agent", "descriptors", agent_files, length, 1, lambda _: DESCRIPTORS_GROWTH),
    ]
    failed = series('sum(increase(gateway_failures_total{side=~"way|replica"}[1m]))')
    quantile = lambda q: [(at, v * 1000) for at, v in series(f'histogram_quantile({q}, sum by (le) (rate(gateway_request_phase_seconds_bucket{{phase="app"}}[1m])))')]
    latency = {"p50": quantile(0.5), "p99": quantile(0.99)}
    good.append(check("latency was measured all the time", len(latency["p99"]) * step >= length * 0.9, f"{len(latency['p99'])} points"))

    marks = [(int(at) / 1000 - begin, what) for at, what in events if what.startswith("restart")]
    drawing = Drawing(length, marks)
    in_mib = lambda points: [(at, value / MIB) for at, value in points]
    drawing.add("Resident memory, MiB (dashed: a restart of two or three)", {**{name: in_mib(points) for name, points in memory.items()}, "agent": in_mib(agent_memory)})
    drawing.add("Open descriptors", {**files, "agent": agent_files})
    drawing.add("From a request to the head of its answer, ms", latency)
    drawing.add("Failures of the way or a replica, each minute", {"failures": failed})
    with open(asked.drawing, "w", encoding="utf-8") as file:
        file.write(drawing.svg())
    for name, points in latency.items():
        if points:
            print(f"{name}: median of the hour {statistics.median(v for _, v in points):.1f} ms, most {max(v for _, v in points):.1f} ms")
    print(f"failures of the way or a replica: {sum(v for _, v in failed) * step / 60:.0f}")
    return 0 if all(good) else 1


if __name__ == "__main__":
    raise SystemExit(main())
