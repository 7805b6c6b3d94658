"""Puts the JSON lines of the measurements into the tables of docs/benchmarks.md, and draws docs/benchmarks.svg.

    python3 benches/compare/report.py RESULTS.json [MORE.json …]

A file holds what this program prints, or the script that measures the Python peers. Of a row that was measured more than
once, the last counts. The text between the tables is kept.
"""

import json
import re
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
SIZES = {"tiles": "tiles, 12 KiB", "vectors": "vectors, 1.5 KiB", "small": "small, 784 B", "labels": "labels, 1 B"}
CODED = [("tiles", "zstd"), ("vectors", "zstd"), ("small", "zstd"), ("labels", "zstd"), ("tiles", "zstd_dict"), ("small", "zstd_dict")]
RAW = [(name, "raw") for name in SIZES]
PYTHON = "loaderx-0.9.17"


def read(paths):
    rows = {}
    for path in paths:
        for line in Path(path).read_text().splitlines():
            if line.startswith("{"):
                row = json.loads(line)
                rows[row["task"], row["data"], row["codec"], row["peer"]] = row["value"]
    return rows


def number(value):
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def table(head, lines):
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def peers(rows, task):
    """The peers that a task was measured with, loaderx first."""
    found = {peer for of, _, _, peer in rows if of == task}
    return sorted(found, key=lambda peer: (not peer.startswith("loaderx-rs"), peer != PYTHON, peer))


def by_data(rows, task, data, columns, head="", label=lambda name, codec: f"{name}, {codec}"):
    lines = [[label(*key), *(number(rows.get((task, *key, peer))) for peer, _ in columns)] for key in data]
    return table([head, *(title for _, title in columns)], [line for line in lines if any(line[1:])])


def tables(rows):
    ours, python = ("loaderx-rs", "loaderx"), (PYTHON, "Python loaderx 0.9.17")
    one, every = ("limit-memcpy-fresh-1", "copy, one core"), ("limit-memcpy-fresh-all", "copy, all cores")
    gather = [one, every, ours, ("ndarray-npy", "ndarray-npy"), ("heed", "heed"), ("npy-mmap", "NumPy, mapped"), ("hdf5", "HDF5"), ("lmdb", "LMDB in Python"), python]
    loaders = [(peer, "loaderx" if peer == "loaderx-rs" else peer) for peer in peers(rows, "loader")]
    detail = [("gather-p50", "p50, us a batch"), ("gather-p99", "p99, us a batch"), ("record", "one record, us"), ("faults", "minor faults a batch")]
    cold = [("limit-fault", "faults of a map"), ("limit-pread", "positional reads"), ("loaderx-rs", "loaderx"), ("loaderx-rs-positional", "loaderx, positional"), ("loaderx-rs-loader", "its loader, built anew"), (PYTHON, "Python loaderx 0.9.17")]
    samplers = [(f"{mode}/{size}", "") for mode in ("sequential", "iid", "cyclic") for size in (256, 1024, 8192)]
    grown = [(task, data, value) for (task, data, _, peer), value in rows.items() if peer.startswith("loaderx-rs") and task in ("open", "seek", "memory")]
    units = {"open": "us", "seek": "us", "memory": "KiB"}
    scaled = [("workers: " + peer[-1], number(value)) for (task, _, _, peer), value in rows.items() if task == "transform"]
    yield "gather-raw", by_data(rows, "gather", RAW, gather, "raw", lambda name, _: SIZES[name])
    yield "gather-coded", by_data(rows, "gather", CODED, [("limit-zstd", "limit-zstd"), ours, python])
    yield "loader", by_data(rows, "loader", RAW + CODED, loaders)
    yield "sampler", by_data(rows, "sampler", samplers, [ours, python], label=lambda name, _: name)
    yield "write", by_data(rows, "write", RAW + CODED, [("limit-write", "a file, synced"), ours, python, ("heed", "heed")])
    yield "disk", by_data({key: value / 1e6 for key, value in rows.items()}, "disk", RAW + CODED, [ours, python, ("heed", "heed")])
    yield "detail", table(["", *(title for _, title in detail)], [[f"{name}, {codec}", *(number(rows.get((task, name, codec, "loaderx-rs"))) for task, _ in detail)] for codec in ("raw", "zstd") for name in SIZES])
    yield "cold", by_data(rows, "gather-cold", [("12 KiB of 2 GiB", "raw")], cold, label=lambda name, _: name)
    yield "growth", table(["", "", ""], [[task, data, f"{number(value)} {units[task]}"] for task, data, value in grown])
    scale = {}
    for (task, data, _, _), value in rows.items():
        if task == "scale":
            scale.setdefault(data.split("/")[0], []).append(f"{int(data.split('/')[1]):,}: {number(value)}")
    yield "scale", table(["", "ns a record"], [[what, " · ".join(values)] for what, values in scale.items()])
    yield "scaling", table(["a transform that computes", "batches/s"], [list(row) for row in scaled])


def chart(rows):
    """Raw gathers: a group of bars for each data set, in microseconds a batch, each group to its own scale."""
    columns = [("loaderx-rs", "loaderx", "#2f6fb0"), ("limit-memcpy-fresh-all", "copy, all cores (limit)", "#9aa5b1"), ("npy-mmap", "NumPy, mapped", "#d9a441"), ("heed", "heed (LMDB)", "#7fa66f"), (PYTHON, "Python loaderx 0.9.17", "#c0605a")]
    lines, y = [], 34
    for name, title in SIZES.items():
        values = [(rows.get(("gather", name, "raw", peer)), text, colour) for peer, text, colour in columns]
        values = [bar for bar in values if bar[0] is not None]
        longest = max((value for value, _, _ in values), default=1)
        lines.append(f'<text x="8" y="{y + 14}" font-weight="bold">{title}</text>')
        for value, text, colour in values:
            width = max(1, 360 * value / longest)
            lines.append(f'<rect x="280" y="{y + 3}" width="{width:.1f}" height="13" fill="{colour}"/>')
            lines.append(f'<text x="272" y="{y + 14}" text-anchor="end">{text}</text>')
            lines.append(f'<text x="{286 + width:.1f}" y="{y + 14}">{number(value)}</text>')
            y += 18
        y += 12
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="720" height="{y}" font-family="sans-serif" font-size="12" fill="#444">'
    title = '<text x="8" y="18" font-size="14">256 random records, warm: microseconds, less is better</text>'
    background = f'<rect width="720" height="{y}" fill="#fff"/>'
    return "\n".join([head, background, title, *lines, "</svg>", ""])


def main():
    rows = read(sys.argv[1:])
    if not rows:
        sys.exit(__doc__)
    page = DOCS / "benchmarks.md"
    text = page.read_text()
    for name, content in tables(rows):
        place = rf"<!-- {name} -->\n(\n(\|.*\n)+)?"
        text, count = re.subn(place, lambda _: f"<!-- {name} -->\n\n{content}\n", text)
        if count != 1:
            sys.exit(f"{page}: {count} places for the table {name}, where one is wanted: <!-- {name} -->")
    page.write_text(text)
    (DOCS / "benchmarks.svg").write_text(chart(rows))


main()
