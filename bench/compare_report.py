# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Makes the tables and the picture of compare.py from its lines. --self-test: checks itself."""

import math
import statistics
import sys
import xml.etree.ElementTree
from html import escape

# The name, colour and dashes of each kind, in the order of the columns and of the legend.
KINDS = {
    "floor": ("floor", "#9aa0a6", "2 3"),
    "loop": ("plain loop", "#9aa0a6", "6 3"),
    "openmpi": ("Open MPI", "#d9822b", ""),
    "mpich": ("MPICH", "#3a9d5d", ""),
    "gloo": ("Gloo", "#a46bc2", ""),
    "colls": ("colls", "#1f4fb4", ""),
    "registered": ("colls, registered", "#1f4fb4", "6 3"),
}
PEERS = ["openmpi", "mpich", "gloo"]
AGAIN = "auto again"
TRANSPORTS = ["shm", "tcp", "inproc", "ucx_only"]
MAX_RATIO = 1.05  # a point is slower if its time is more than that multiple in every run


def size_of(count):
    for unit in (" B", " KiB", " MiB"):
        if count < 1024:
            return f"{count}{unit}"
        count //= 1024
    return f"{count} GiB"


def time_of(us):
    for unit in ("us", "ms"):
        if us < 1000:
            return f"{us:g} {unit}"
        us /= 1000
    return f"{us:g} s"


def kind_of(line):
    if line["library"] == "floor" and line["transport"] == "tcp" and line["algorithm"] == "add":
        return "loop"  # not a bound: a program that makes an all_reduce with plain calls
    return "registered" if line["library"] == "colls" and line["registered"] else line["library"]


def is_floor_of(line):
    """Returns whether the line is from the floor that bounds an all_reduce of this size."""
    if line["transport"] == "tcp":
        return True
    return line["algorithm"] == ("exchange" if line["bytes"] <= 64 else "add")


def summary(lines, best):
    """{(transport, ranks, collective): {bytes: {kind: (us, algorithm)}}}: the fastest candidate of each
    kind, by the median over the launches of their medians, or by the best time of all. A floor is a
    bound, so its best launch counts. Above 64 KiB, where its speed varies at random between launches,
    its best time counts."""
    runs = {}
    for line in lines:
        kind = kind_of(line)
        if kind == "floor" and not is_floor_of(line):
            continue
        place = (line["transport"], line["ranks"], line["collective"])
        least = best or (kind == "floor" and line["bytes"] > 65536)
        us = line["us_min" if least else "us_median"]
        runs.setdefault((place, line["bytes"], kind, line["algorithm"]), []).append(us)
    found = {}
    for (place, count, kind, algorithm), times in runs.items():
        us = min(times) if best or kind == "floor" else statistics.median(times)
        row = found.setdefault(place, {}).setdefault(count, {})
        row[kind] = min(row.get(kind, (us, algorithm)), (us, algorithm))
    return found


def best_peer(row):
    return min((row[kind][0] for kind in PEERS if kind in row), default=None)


def digits(value):
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def ratio(row, kind="colls"):
    """Below 1: colls is faster than every peer."""
    peer = best_peer(row)
    return digits(row[kind][0] / peer) if kind in row and peer else ""


def table(place, rows):
    transport, ranks, collective = place
    kinds = [kind for kind in KINDS if any(kind in row for row in rows.values())]
    yield f"\n**{collective} over {transport}, {ranks} ranks**, us:\n"
    heads = ["bytes"] + [KINDS[kind][0] for kind in kinds] + ["colls / best peer"]
    heads += ["registered / best peer"] * ("registered" in kinds)
    heads += ["colls / floor"] * ("floor" in kinds)
    yield "| " + " | ".join(heads) + " |"
    yield "|" + "---|" * len(heads)
    for count, row in sorted(rows.items()):
        cells = [size_of(count)]
        for kind in kinds:
            us, algorithm = row.get(kind, (None, ""))
            named = algorithm if algorithm != "auto" and kind in PEERS else ""
            cells.append("" if us is None else f"{digits(us)} {named}".strip())
        cells.append(ratio(row))
        if "registered" in kinds:
            cells.append(ratio(row, "registered"))
        if "floor" in kinds:
            both = "floor" in row and "colls" in row
            cells.append(digits(row["colls"][0] / row["floor"][0]) if both else "")
        yield "| " + " | ".join(cells) + " |"


def tables(lines, best=False):
    """Times of all_reduce (or of the only collective), and ratios of all other collectives."""
    found = summary(lines, best)
    collectives = list(dict.fromkeys(place[2] for place in found))
    detailed = "all_reduce" if "all_reduce" in collectives else collectives[0] if collectives else ""
    for place in sorted(found, key=lambda at: (TRANSPORTS.index(at[0]), at[1])):
        if place[2] == detailed:
            yield from table(place, found[place])
    if len(collectives) == 1:
        return
    for transport in TRANSPORTS:
        places = [place for place in found if place[0] == transport]
        sizes = sorted({count for place in places for count in found[place]} - {0})
        if not places:
            continue
        yield f"\n**colls' time over the best peer's, {transport}** (below 1: colls is quicker):\n"
        yield "| collective | ranks | " + " | ".join(size_of(count) for count in sizes) + " |"
        yield "|---|---|" + "---|" * len(sizes)
        for place in sorted(places, key=lambda at: (collectives.index(at[2]), at[1])):
            rows = found[place]
            for kind in ("colls", "registered"):
                cells = [ratio(rows.get(count, {}), kind) for count in sizes]
                if 0 in rows:
                    cells[0] = ratio(rows[0], kind)
                if any(cells):
                    name = place[2] + ", registered" * (kind == "registered")
                    yield f"| {name} | {place[1]} | " + " | ".join(cells) + " |"


def choices(lines):
    """How often colls' choice is nearly as fast as the fastest of its algorithms, and how often it is
    as fast as the same choice measured again."""
    runs = {}
    for line in lines:
        point = (line["transport"], line["ranks"], line["collective"], line["bytes"])
        runs.setdefault(point, {}).setdefault(line["algorithm"], []).append(line["us_median"])
    yield "| transport | ranks | auto beside | points | within 5 % | within 10 % | worst |"
    yield "|---|---|---|---|---|---|---|"
    places = {}
    for (transport, ranks, collective, count), algorithms in sorted(runs.items()):
        again = algorithms.pop(AGAIN, None)
        name = f"{collective} of {size_of(count)}"
        twice = [statistics.median(us) for us in (algorithms["auto"], again or algorithms["auto"])]
        algorithms["auto"] = algorithms["auto"] + (again or [])
        times = {algorithm: statistics.median(us) for algorithm, us in algorithms.items()}
        best = min(times, key=times.get)
        points = places.setdefault((transport, ranks), {"the best": [], "itself": []})
        points["the best"].append((times["auto"] / times[best], f"{name}, {best}"))
        if again:
            points["itself"].append((max(twice) / min(twice), name))
    for (transport, ranks), beside in places.items():
        for what, points in beside.items():
            if not points:
                continue
            within = [sum(ratio <= limit for ratio, _ in points) for limit in (1.05, 1.1)]
            worst = [f"{ratio:.2f}: {name}" for ratio, name in sorted(points, reverse=True)[:5]
                     if ratio > 1.1]
            yield (f"| {transport} | {ranks} | {what} | {len(points)} | "
                   + " | ".join(f"{n} ({100 * n / len(points):.0f} %)" for n in within)
                   + f" | {'; '.join(worst)} |")


def geometric_mean(ratios):
    return math.exp(statistics.fmean(map(math.log, ratios)))


def against(lines, best=False):
    """A table of the times of this build over those of the other, by run, and the points that are
    slower in each of several runs."""
    times = {}
    for line in lines:
        point = (line["transport"], line["ranks"], line["collective"], line["bytes"])
        builds = times.setdefault(line["run"], {}).setdefault(point, {"this": [], "other": []})
        builds[line["algorithm"]].append(line["us_min" if best else "us_median"])
    typical = min if best else statistics.median
    runs = [{point: typical(us["this"]) / typical(us["other"]) for point, us in points.items()
             if us["this"] and us["other"]} for _, points in sorted(times.items())]
    heads = ["transport", "ranks", "points"] + [f"run {n + 1}" for n in range(len(runs))]
    table = ["**this build's times over the other's** (geometric means; below 1: it is quicker):", "",
             "| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    places = list(dict.fromkeys(point[:2] for points in runs for point in points))
    for place in places + [("all", "")]:
        within = [[ratio for point, ratio in points.items() if place[0] == "all" or point[:2] == place]
                  for points in runs]
        means = [f"{geometric_mean(ratios):.4f}" if ratios else "" for ratios in within]
        table.append(f"| {place[0]} | {place[1]} | {max(map(len, within), default=0)} | "
                     + " | ".join(means) + " |")
    slower = []
    for point in runs[0] if len(runs) > 1 else []:
        ratios = [points.get(point, 0) for points in runs]
        if min(ratios) > MAX_RATIO:
            transport, ranks, collective, count = point
            slower.append(f"slower in every run: {collective} of {size_of(count)}, {transport}, "
                          f"{ranks} ranks: " + ", ".join(digits(ratio) for ratio in ratios))
    return table, slower


# --- the picture ------------------------------------------------------------------------------

WIDTH, HEIGHT, LEFT, TOP, GAP = 400, 280, 62, 74, 96


def text(x, y, words, size=11, anchor="start", colour="#222"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
            f'fill="{colour}">{escape(words)}</text>')


def line_of(points, colour, dashes, width):
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"'
            f"{dashed}/>")


def panel(x0, y0, title, rows):
    sizes = sorted(rows)
    times = [us for row in rows.values() for us, _ in row.values() if us > 0]
    low, high = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))
    high = max(high, low + 1)
    first, last = math.log2(sizes[0]), max(math.log2(sizes[-1]), math.log2(sizes[0]) + 1)

    def at(count, us):
        return (x0 + (math.log2(count) - first) / (last - first) * WIDTH,
                y0 + HEIGHT - (math.log10(us) - low) / (high - low) * HEIGHT)

    yield text(x0, y0 - 10, title, 13)
    for decade in range(low, high + 1):
        y = at(sizes[0], 10.0**decade)[1]
        yield line_of([(x0, y), (x0 + WIDTH, y)], "#ddd", "", 1)
        yield text(x0 - 6, y + 4, time_of(10.0**decade), 11, "end")
        for part in range(2, 10 if decade < high else 2):
            y = at(sizes[0], part * 10.0**decade)[1]
            yield line_of([(x0, y), (x0 + WIDTH, y)], "#f3f3f3", "", 1)
    free = x0 - WIDTH  # the next label may begin here
    for count in sizes:
        x = at(count, 10.0**low)[0]
        yield line_of([(x, y0), (x, y0 + HEIGHT)], "#eee", "", 1)
        if x >= free:
            yield text(x, y0 + HEIGHT + 16, size_of(count).replace("iB", ""), 11, "middle")
            free = x + 36
    yield text(x0 + WIDTH / 2, y0 + HEIGHT + 34, "bytes", 11, "middle")
    for kind, (name, colour, dashes) in KINDS.items():
        points = [(count, *row[kind]) for count, row in sorted(rows.items()) if kind in row]
        ours = kind in ("colls", "registered")
        yield line_of([at(count, us) for count, us, _ in points], colour, dashes, 2.5 if ours else 1.7)
        for count, us, algorithm in points:
            x, y = at(count, us)
            label = f"{name} {algorithm}, {size_of(count)}: {digits(us)} us"
            yield (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{3 if ours else 2.3}" fill="{colour}">'
                   f"<title>{escape(label)}</title></circle>")


def picture(lines, best=False):
    """Draws time over size, with one panel for each transport and number of ranks."""
    found = summary([line for line in lines if line["bytes"] > 0], best)
    collectives = list(dict.fromkeys(place[2] for place in found))
    shown = "all_reduce" if "all_reduce" in collectives else (collectives or [""])[0]
    places = [place for place in found if place[2] == shown]
    ranks = sorted({place[1] for place in places})
    transports = [t for t in TRANSPORTS if any(place[0] == t for place in places)]
    width = LEFT + max(1, len(transports)) * (WIDTH + GAP) - 40
    height = TOP + len(ranks) * (HEIGHT + GAP) - 40
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
           f'width="{width}" height="{height}" font-family="sans-serif">',
           f'<rect width="{width}" height="{height}" fill="white"/>']
    present = {kind for place in places for row in found[place].values() for kind in row}
    x = LEFT
    for kind, (name, colour, dashes) in KINDS.items():
        if kind in present:
            out.append(line_of([(x, 20), (x + 28, 20)], colour, dashes, 2.5))
            out.append(text(x + 34, 24, name))
            x += 62 + 7 * len(name)
    for row, p in enumerate(ranks):
        for column, transport in enumerate(transports):
            if (transport, p, shown) in found:
                out += panel(LEFT + column * (WIDTH + GAP), TOP + row * (HEIGHT + GAP),
                             f"{shown} over {transport}, {p} ranks", found[transport, p, shown])
    return "\n".join(out + ["</svg>"]) + "\n"


def self_test():
    def line(library, us, algorithm="auto", bytes=4096, registered=False, collective="all_reduce"):
        return {"library": library, "transport": "shm", "ranks": 2, "collective": collective,
                "bytes": bytes, "us_median": us, "us_min": us / 2, "algorithm": algorithm,
                "registered": registered}

    lines = [line("colls", us) for us in (2, 9, 3)] + [line("colls", 1, registered=True)]
    lines += [line("openmpi", us, "ob1") for us in (4, 5, 40)] + [line("openmpi", 6, "ucx")]
    lines += [line("mpich", 7), line("floor", 0.5, "add"), line("floor", 0.1, "copy")]
    lines += [line("colls", 8, bytes=0, collective="barrier"),
              line("mpich", 2, bytes=0, collective="barrier")]
    text = "\n".join(tables(lines))
    expected = {
        "medians, the best candidate of a library, the floor that bounds":
            "| 4 KiB | 0.50 | 5.00 ob1 | 7.00 | 3.00 | 1.00 | 0.60 | 0.20 | 6.00 |",
        "ratios of all collectives": "| all_reduce | 2 | 0.60 |",
        "ratios with registered buffers": "| all_reduce, registered | 2 | 0.20 |",
        "a barrier has one column": "| barrier | 2 | 4.00 |",
    }
    failed = [f"{what}: no line {row}" for what, row in expected.items() if row not in text]
    if "| 4 KiB | 0.25 | 2.00 ob1 | 3.50 | 1.00 | 0.50 |" not in "\n".join(tables(lines, best=True)):
        failed.append("best times")
    chosen = [line("colls", us, how) for how, times in
              [("auto", (4, 8, 4)), (AGAIN, (5, 5, 5)), ("ring", (4, 4, 4)), ("direct", (9, 9))]
              for us in times]
    chosen += [line("colls", us, how, 8) for how, us in [("auto", 3), (AGAIN, 3), ("ring", 2.9)]]
    half = "| 2 | 1 (50 %) | 1 (50 %) | 1.25: all_reduce of 4 KiB"
    for row in (f"| shm | 2 | the best {half}, ring |", f"| shm | 2 | itself {half} |"):
        if row not in "\n".join(choices(chosen)):
            failed.append(f"choices: no line {row}")
    beside = [line("colls", us, how, size) | {"run": run} for run, size, how, us in [
        (0, 8, "this", 4), (0, 8, "other", 2), (0, 64, "this", 1), (0, 64, "other", 2),
        (1, 8, "this", 3), (1, 8, "other", 2), (1, 64, "this", 3), (1, 64, "other", 2)]]
    report, slower = against(beside)
    if "| all |  | 2 | 1.0000 | 1.5000 |" not in report:
        failed.append(f"against: {report}")
    if slower != ["slower in every run: all_reduce of 8 B, shm, 2 ranks: 2.00, 1.50"]:
        failed.append(f"against: {slower}")
    if against([line for line in beside if line["run"] == 0])[1]:
        failed.append("against: a point is called slower after one run")
    drawn = xml.etree.ElementTree.fromstring(picture(lines))
    dots = sum(element.tag.endswith("circle") for element in drawn.iter())
    if dots != 5:
        failed.append(f"picture: {dots} dots, not one for each kind")
    for problem in failed:
        print(problem)
    print(f"{len(expected) + 7 - len(failed)} passed, {len(failed)} failed")
    sys.exit(bool(failed))


if __name__ == "__main__" and sys.argv[1:] == ["--self-test"]:
    self_test()
