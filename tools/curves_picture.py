"""Draws loss curves of several CSV files (columns step, loss, val_loss) side by side as one SVG.

    python curves_picture.py OUT.svg TITLE=NAME:a.csv,NAME:b.csv …

A file without a name is Capstan's metrics.csv if it is the first of its panel, and PyTorch's if it is the second.
"""

import csv
import sys

WIDTH, HEIGHT, LEFT, TOP = 420, 300, 52, 34
COLOURS = ("#2f81f7", "#d29922")
NAMES = ("Capstan", "PyTorch")


def column(path: str, name: str) -> list[tuple[float, float]]:
    with open(path) as file:
        return [(float(row["step"]), float(row[name])) for row in csv.DictReader(file) if row.get(name)]


def panel(title: str, named: list[str], x0: int) -> str:
    names = [n.split(":")[0] if ":" in n else NAMES[i] for i, n in enumerate(named)]
    files = [n.split(":")[-1] for n in named]
    series = [(i, kind, column(f, kind)) for i, f in enumerate(files) for kind in ("loss", "val_loss")]
    points = [p for _, _, s in series for p in s]
    last = max(x for x, _ in points)
    low, high = min(y for _, y in points), max(y for _, y in points)
    w, h = WIDTH - LEFT - 14, HEIGHT - TOP - 44

    def at(x: float, y: float) -> str:
        return f"{x0 + LEFT + w * x / last:.1f},{TOP + h * (high - y) / (high - low):.1f}"

    out = [f'<text x="{x0 + LEFT}" y="20" class="t">{title}</text>']
    for k in range(5):
        y = low + (high - low) * k / 4
        out.append(f'<path d="M{at(0, y)} L{at(last, y)}" class="g"/>'
                   f'<text x="{x0 + LEFT - 6}" y="{TOP + h * (1 - k / 4) + 4:.0f}" text-anchor="end">{y:.2f}</text>')
        out.append(f'<text x="{x0 + LEFT + w * k / 4:.0f}" y="{TOP + h + 18}" text-anchor="middle">{last * k / 4:.0f}</text>')
    for i, kind, s in series:
        line = " L".join(at(*p) for p in s)
        style = 'stroke-width="1" opacity="0.45"' if kind == "loss" else 'stroke-width="2.4"'
        out.append(f'<path d="M{line}" fill="none" stroke="{COLOURS[i]}" {style}/>')
    for i, name in enumerate(names):
        out.append(f'<text x="{x0 + LEFT + w - 4}" y="{TOP + 16 + 16 * i}" text-anchor="end" '
                   f'style="fill:{COLOURS[i]}">{name}: training thin, held-out bold</text>')
    return "\n".join(out)


def main(out: str, panels: list[str]) -> None:
    parts = []
    for i, p in enumerate(panels):
        title, files = p.split("=")
        parts.append(panel(title, files.split(","), i * WIDTH))
    style = ("<style>text{font:11px sans-serif;fill:#848d97}.t{font-weight:bold;font-size:13px}"
             ".g{stroke:#848d97;stroke-opacity:.25}</style>")
    with open(out, "w") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH * len(panels)} {HEIGHT}">'
                   f"{style}\n" + "\n".join(parts) + "\n</svg>\n")


main(sys.argv[1], sys.argv[2:])
