"""Draws what `capstan demo` printed: the loss over the steps, and the tasks answered before and after.

usage: build/cpu/capstan demo > demo.log 2>&1; python3 tools/demo_picture.py demo.log > docs/demo.svg
"""

import math
import re
import sys

WIDTH, HEIGHT = 760, 300
LEFT, TOP, PLOT_W, PLOT_H = 64, 48, 420, 200


def points(log: str) -> list[tuple[int, float]]:
    found = re.findall(r"step (\d+)/\d+ \| loss ([\d.]+)", log)
    first = re.findall(r"loss ([\d.]+) at the first step", log)
    return [(1, float(first[0]))] + [(int(step), float(loss)) for step, loss in found]


def percents(log: str) -> tuple[int, int]:
    before, after = re.findall(r"training:\s+\d+ of \d+ held-out tasks answered exactly \((\d+)%\)", log)
    return int(before), int(after)


def curve(data: list[tuple[int, float]]) -> tuple[str, str]:
    """The polyline and its axis labels, on a logarithmic scale."""
    low, high, last = 0.01, 10.0, data[-1][0]

    def y(loss: float) -> float:
        share = (math.log10(max(loss, low)) - math.log10(low)) / math.log10(high / low)
        return TOP + PLOT_H * (1 - share)

    line = " ".join(f"{LEFT + PLOT_W * step / last:.1f},{y(loss):.1f}" for step, loss in data)
    ticks = ""
    for value in (0.01, 0.1, 1, 10):
        ticks += f'<line class="grid" x1="{LEFT}" x2="{LEFT + PLOT_W}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>'
        ticks += f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>'
    for share in (0, 0.5, 1):
        x = LEFT + PLOT_W * share
        ticks += f'<text x="{x:.1f}" y="{TOP + PLOT_H + 20}" text-anchor="middle">{int(last * share)}</text>'
    return line, ticks


def bars(before: int, after: int) -> str:
    svg = ""
    for i, (name, value) in enumerate((("before", before), ("after", after))):
        x, h = 580 + 80 * i, PLOT_H * value / 100
        svg += f'<rect class="slot" x="{x}" y="{TOP}" width="48" height="{PLOT_H}"/>'
        svg += f'<rect class="bar" x="{x}" y="{TOP + PLOT_H - h:.1f}" width="48" height="{h:.1f}"/>'
        svg += f'<text class="big" x="{x + 24}" y="{TOP + PLOT_H - h - 8:.1f}" text-anchor="middle">{value}%</text>'
        svg += f'<text x="{x + 24}" y="{TOP + PLOT_H + 20}" text-anchor="middle">{name}</text>'
    return svg


def main() -> None:
    log = open(sys.argv[1], encoding="utf-8").read()
    line, ticks = curve(points(log))
    print(f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">
<title>Training loss of the demo, and held-out tasks answered exactly before and after</title>
<style>
  text {{ font: 13px system-ui, sans-serif; fill: #57606a; }}
  .title {{ font-weight: 600; font-size: 14px; }} .big {{ font-weight: 600; }}
  .grid {{ stroke: #8b949e; stroke-opacity: .3; }} .slot {{ fill: #8b949e; fill-opacity: .15; }}
  .bar {{ fill: #2f81f7; }} polyline {{ fill: none; stroke: #2f81f7; stroke-width: 2.5; stroke-linejoin: round; }}
</style>
<text class="title" x="{LEFT}" y="26">training loss, by step</text>
<text class="title" x="580" y="26">held-out tasks right</text>
{ticks}
<polyline points="{line}"/>
{bars(*percents(log))}
</svg>""")


if __name__ == "__main__":
    main()
