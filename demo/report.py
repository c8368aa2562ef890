# SPDX-License-Identifier: Apache-2.0
"""The demo's table and its HTML page: one file, plots as inline SVG, nothing loaded from anywhere."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

Points = Sequence[tuple[float, float]]
COLORS = {"weights": "#3b6fb6", "m": "#d08b2c", "v": "#4a9a5b", "rest": "#999999"}
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 760, 280, 56, 36, 12


def rows(figures: dict[str, Any], more: dict[str, Any]) -> list[tuple[str, str]]:
    """What and how much, for the table and the page."""
    size, bit = more["size"], figures["bits_per_param"]
    by_role = {n: sum(r["by_role"].get(k, 0) for r in size["checkpoints"]) for n, k in (("weights", "weight"), ("m", "m"), ("v", "v"))}
    rest = size["bytes"] - sum(by_role.values())
    gap = figures["loss_interrupted"] - figures["loss_uninterrupted"]
    out = [
        ("checkpoints written", f"{figures['checkpoints']}, {figures['keys']} of them keys"),
        ("raw bytes", f"{size['raw']:,}"),
        ("stored bytes, everything", f"{size['bytes']:,} ({figures['ratio']:.1f} times smaller)"),
    ]
    out += [(f"  {name}", f"{by_role[name]:,} bytes, {bit[name]:.3f} bits a parameter") for name in by_role]
    out += [
        (
            "  headers, tables, random states, run.json",
            f"{rest:,} bytes, {bit['total'] - sum(bit[n] for n in by_role):.3f} bits a parameter",
        ),
        ("  in all", f"{bit['total']:.3f} bits a parameter"),
        ("kills, of them in a save", f"{figures['kills']}, {figures['kills_during_save']}"),
        ("restores from lossy checkpoints", str(figures["restores_from_lossy"])),
        ("stall of a save, mean", f"{figures['stall_ms']:.2f} ms"),
        ("save until committed, mean", f"{more['save_ms']:.0f} ms in the background, beside training"),
        ("restore, mean", f"{more['restore_ms']:.0f} ms"),
        ("held-out loss, uninterrupted", f"{figures['loss_uninterrupted']:.4f}"),
        ("held-out loss, interrupted", f"{figures['loss_interrupted']:.4f} ({gap:+.4f})"),
        ("loss a step in the last quarter", f"{more['slope']:.6f}"),
        ("steps lost per restore", f"{figures['steps_lost_per_restore']:.2f}"),
        ("final weights bit-identical", "yes" if figures["identical_weights"] else "no"),
    ]
    return out


def table(figures: dict[str, Any], more: dict[str, Any]) -> str:
    lines = rows(figures, more)
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in lines)


class Plot:
    """Axes in a fixed frame, to draw in data coordinates."""

    def __init__(self, xs: Sequence[float], ys: Sequence[float], x_label: str, y_label: str) -> None:
        self.x0, self.x1 = min(xs), max(xs)
        self.y0, self.y1 = min(ys), max(ys)
        self.x1 = self.x1 if self.x1 > self.x0 else self.x0 + 1
        self.y1 = self.y1 if self.y1 > self.y0 else self.y0 + 1
        self.parts = [f'<line x1="{LEFT}" y1="{HEIGHT - BOTTOM}" x2="{WIDTH}" y2="{HEIGHT - BOTTOM}" stroke="#444"/>',
                      f'<line x1="{LEFT}" y1="{TOP}" x2="{LEFT}" y2="{HEIGHT - BOTTOM}" stroke="#444"/>',
                      f'<text x="{(WIDTH + LEFT) / 2}" y="{HEIGHT - 4}" text-anchor="middle">{x_label}</text>',
                      f'<text x="4" y="{TOP - 2}">{y_label}</text>']  # fmt: skip
        for i in range(5):
            self._tick(i / 4)

    def _tick(self, part: float) -> None:
        x, y = self.x0 + part * (self.x1 - self.x0), self.y0 + part * (self.y1 - self.y0)
        self.parts.append(f'<text x="{self.x(x):.1f}" y="{HEIGHT - BOTTOM + 14}" text-anchor="middle">{x:.0f}</text>')
        self.parts.append(f'<text x="{LEFT - 4}" y="{self.y(y) + 4:.1f}" text-anchor="end">{y:.3g}</text>')

    def x(self, v: float) -> float:
        return LEFT + (v - self.x0) / (self.x1 - self.x0) * (WIDTH - LEFT - 8)

    def y(self, v: float) -> float:
        return HEIGHT - BOTTOM - (v - self.y0) / (self.y1 - self.y0) * (HEIGHT - BOTTOM - TOP)

    def line(self, points: Points, color: str) -> None:
        path = " ".join(f"{self.x(a):.1f},{self.y(b):.1f}" for a, b in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.6"/>')

    def mark(self, at: float, color: str, words: str) -> None:
        x = self.x(at)
        self.parts.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}" stroke="{color}" stroke-dasharray="3 3">'
                          f"<title>{html.escape(words)}</title></line>")  # fmt: skip

    def bar(self, at: float, low: float, high: float, width: float, color: str, words: str) -> None:
        x, w = self.x(at) - width / 2, width
        self.parts.append(f'<rect x="{x:.1f}" y="{self.y(high):.1f}" width="{w:.1f}" height="{self.y(low) - self.y(high):.1f}" '
                          f'fill="{color}"><title>{html.escape(words)}</title></rect>')  # fmt: skip

    def svg(self) -> str:
        return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{"".join(self.parts)}</svg>'


def _loss(plain: Any, broken: Any) -> str:
    curves = [[(e["step"], e["loss"]) for e in run.events if e["event"] == "held_out"] for run in (plain, broken)]
    every = [p for curve in curves for p in curve]
    plot = Plot([p[0] for p in every], [p[1] for p in every], "step", "held-out loss")
    for kill in broken.kills:
        plot.mark(kill["step"], "#c33", f"killed at step {kill['step']}" + (", in a save" if kill["during_save"] else ""))
    for curve, color in zip(curves, ("#444", "#3b6fb6")):
        plot.line(curve, color)
    return plot.svg()


def _sizes(checkpoints: list[dict[str, Any]]) -> str:
    top = max(r["bytes"] for r in checkpoints) / 1e3
    plot = Plot([0] + [r["step"] for r in checkpoints], [0, top], "step", "kB")
    width = (WIDTH - LEFT) / (len(checkpoints) + 1) * 0.7
    for r in checkpoints:
        low = 0.0
        parts = {"weights": r["by_role"].get("weight", 0), "m": r["by_role"].get("m", 0), "v": r["by_role"].get("v", 0)}
        parts["rest"] = r["bytes"] - sum(parts.values())
        for name, size in parts.items():
            plot.bar(r["step"], low, low + size / 1e3, width, COLORS[name], f"step {r['step']}: {name} {size:,} bytes")
            low += size / 1e3
    return plot.svg()


def _stalls(stalls: Points) -> str:
    plot = Plot([p[0] for p in stalls], [0, *(p[1] for p in stalls)], "step", "ms")
    plot.line(stalls, "#3b6fb6")
    return plot.svg()


def page(profile: str, plain: Any, broken: Any, figures: dict[str, Any], more: dict[str, Any], verdicts: list[Any]) -> str:
    """The whole page."""
    cells = "".join(f"<tr><td>{html.escape(n).replace('  ', '&emsp;')}</td><td>{html.escape(v)}</td></tr>" for n, v in rows(figures, more))
    words = "".join(f"<li>{'✓' if v.holds else '✗'} {html.escape(str(v))}</li>" for v in verdicts)
    legend = ", ".join(f'<span style="color:{color}">{name}</span>' for name, color in COLORS.items())
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>ckpress demo, profile {profile}</title>
<style>body {{ font: 15px sans-serif; max-width: 800px; margin: 2em auto; color: #222 }} svg {{ width: 100%; font: 11px sans-serif }}
td {{ padding: 2px 12px 2px 0 }} ul {{ list-style: none; padding: 0 }}</style>
<h1>A training run, killed {figures["kills"]} times</h1>
<p>Profile <b>{profile}</b>. Sizes count every byte of every checkpoint written; none was deleted. The run makes no lossless last save,
which a real run's end does.</p>
<ul>{words}</ul>
<table>{cells}</table>
<h2>Held-out loss</h2><p>Grey: uninterrupted; blue: interrupted, kills dashed. After a restore, steps are trained again. A quarter of the
held-out text; the table has the whole.</p>{_loss(plain, broken)}
<h2>Size of each checkpoint</h2><p>{legend}</p>{_sizes(more["size"]["checkpoints"])}
<h2>Stall of each save</h2><p>How long save() held up training; saves whose process was killed before it could tell are missing.</p>
{_stalls(more["stalls"])}
</html>
"""
