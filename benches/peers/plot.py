"""Pictures of what `compare.py` has measured, as SVG."""

from html import escape
from math import log10

INK, FAINT, OURS, MISSED = "#222", "#ccc", "#3b6fb6", "#c0504d"


def svg(width, height, parts):
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">'
    return "\n".join([head, f'<rect width="{width}" height="{height}" fill="white"/>', *parts, "</svg>", ""])


def text(x, y, words, anchor="start", color=INK):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}">{escape(str(words))}</text>'


def line(x1, y1, x2, y2, color=FAINT):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}"/>'


def ratios(rows):
    """Bars on a logarithmic scale; a stroke where the target is."""
    left, step, width = 330, 24, 860
    top = max(2, max(max(row["ratio"], row["target"] or 0) for row in rows)) * 1.3
    low = min(0.5, min(row["ratio"] for row in rows) / 1.2)
    x = lambda ratio: left + (width - left - 60) * (log10(ratio) - log10(low)) / (log10(top) - log10(low))
    bottom = 50 + step * len(rows)
    parts = [text(10, 22, "Time of the other library / time of hookpoint (the same work, longer is better)")]
    for mark in [mark for mark in [0.5, 1, 2, 5, 10, 20, 50, 100] if low <= mark <= top]:
        parts += [line(x(mark), 36, x(mark), bottom, INK if mark == 1 else FAINT), text(x(mark), bottom + 16, mark, "middle")]
    for number, row in enumerate(rows):
        y = 44 + step * number
        met = row["target"] is None or row["ratio"] >= row["target"]
        start, end = sorted([x(1), x(row["ratio"])])
        parts.append(text(left - 8, y + 12, f"{row['work']}, {row['library']}", "end"))
        parts.append(f'<rect x="{start:.1f}" y="{y}" width="{max(1, end - start):.1f}" height="16" fill="{OURS if met else MISSED}"/>')
        parts.append(text(max(x(row["ratio"]), x(1)) + 6, y + 12, f"{row['ratio']:.2f}"))
        if row["target"]:
            parts.append(f'<rect x="{x(row["target"]) - 1:.1f}" y="{y - 3}" width="2" height="22" fill="{INK}"/>')
    return svg(width, bottom + 30, parts)


def curve(points, left, label, title):
    width, height, bottom = 300, 200, 250
    most_x, most_y = max(x for x, _ in points) or 1, max(y for _, y in points) * 1.15
    place = lambda point: (left + width * point[0] / most_x, bottom - height * point[1] / most_y)
    parts = [text(left, 30, title), line(left, bottom, left + width, bottom, INK), line(left, bottom - height, left, bottom, INK)]
    parts += [text(left + width / 2, bottom + 34, label, "middle"), text(left - 6, bottom - height + 4, f"{1e3 * most_y:.0f} ms", "end"), text(left - 6, bottom + 4, "0", "end")]
    parts.append('<polyline fill="none" stroke="%s" points="%s"/>' % (OURS, " ".join("%.1f,%.1f" % place(point) for point in points)))
    for point in points:
        x, y = place(point)
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{OURS}"/>', text(x, bottom + 16, point[0], "middle")]
    return parts


def write(rows, costs, folder):
    written = []
    if rows:
        written.append(folder / "ratios.svg")
        written[-1].write_text(ratios(rows))
    if costs:
        parts = curve(costs["layers"], 70, "layer that is patched", "16 cells in one layer, 16 tokens")
        parts += curve(costs["cells"], 470, "cells", "cells in layer 6, 16 tokens")
        written.append(folder / "sweeps.svg")
        written[-1].write_text(svg(800, 300, parts))
    return written
