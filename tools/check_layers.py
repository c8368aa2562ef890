#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails on an #include that breaks the table of rooms in docs/architecture.md.

Checked: includes between rooms of src/, that arrows point down, outside libraries, that cli/ and python/ see public headers
only, that public headers include public headers only, and that CMakeLists.txt links rooms by the same table.
"""
import argparse
import pathlib
import re
import sys

SOURCE = (".c", ".h", ".inc", ".cu")
# outside libraries: what their includes look like; everything else in angle brackets is libc
LIBRARIES = {
    "zstd": re.compile(r"^zstd(_errors)?\.h$|^zdict\.h$"),
    "xxhash": re.compile(r"^xxh(ash|3)\.h$"),
    "jansson": re.compile(r"^jansson\.h$"),
    "htscodecs": re.compile(r"^htscodecs/"),
    "cuda": re.compile(r"^cuda_\w+\.h$"),
    "cpython": re.compile(r"^(Python|structmember)\.h$"),
}
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]')
INTRINSICS = re.compile(r"^(immintrin|arm_neon|cpuid|x86intrin)\.h$")


def read_table(page):
    """room -> (level, set of what it may include)"""
    text = page.read_text()
    match = re.search(r"<!-- check_layers: table -->\n(.*?)<!-- check_layers: end -->", text, re.S)
    if match is None:
        sys.exit(f"{page}: no room table between its check_layers comments")
    rooms = {}
    for line in match[1].splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) == 4 and cells[0].isdigit():
            rooms[cells[1]] = (int(cells[0]), {name.strip() for name in cells[3].split(",")})
    return rooms


def check_table(rooms):
    for room, (level, allowed) in rooms.items():
        for other in allowed:
            if other in rooms and rooms[other][0] >= level:
                yield f"docs/architecture.md: {room} (level {level}) may not include {other} (level {rooms[other][0]})"


def check_cmake(root, rooms):
    """Every ckp_room() line names the rooms of the table."""
    linked = {}
    for line in (root / "CMakeLists.txt").read_text().splitlines():
        match = re.match(r"ckp_room\((\w+)\s*(.*)\)", line)
        if match:
            words = match[2].split("LIBS")[0].split()
            linked[match[1]] = set(words[1:]) if words else set()
    for room in linked:
        if room not in rooms:
            yield f"CMakeLists.txt: room {room} is not in docs/architecture.md"
    for room, (level, allowed) in rooms.items():
        if level < 6 and linked.get(room) != {name for name in allowed if name in rooms}:
            yield f"CMakeLists.txt: ckp_room({room} ...) differs from docs/architecture.md"


def includes(path):
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match[1] == '"', match[2]


def check_file(root, path, room, rooms):
    level, allowed = rooms[room]
    for number, quoted, name in includes(path):
        where = f"{path.relative_to(root)}:{number}"
        first = name.split("/")[0]
        if name.startswith("ckpress/"):
            header = root / "include" / name
            if not header.is_file():
                yield f"{where}: {name} does not exist"
            owner = pathlib.PurePath(name).stem.split("_")[0]  # run.h, run_file.h: room run
            # The umbrella header is for users; a room sees its own public header and those of rooms it may include.
            if level < 6 and owner != room and owner not in allowed:
                yield f"{where}: {room} may not include <{name}>"
            continue
        library = next((lib for lib, pattern in LIBRARIES.items() if pattern.match(name)), None)
        if library is not None:
            if library not in allowed:
                yield f"{where}: {room} may not use {library}"
        elif first in rooms and "/" in name:
            if level >= 6 and first != room:
                yield f"{where}: {room} sees public headers only, not {name}"
            elif first != room and first not in allowed:
                yield f"{where}: {room} may not include {name}"
        elif quoted and not (path.parent / name).is_file() and not (level >= 6 and (root / room / name).is_file()):
            yield f"{where}: {name}: no such file from src/ or {room}/"
        elif not quoted and INTRINSICS.match(name) and level >= 2 and room != "optim":
            yield f"{where}: intrinsics belong into base, codec, quant and optim"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    root = parser.parse_args().root.resolve()
    rooms = read_table(root / "docs/architecture.md")
    problems = [*check_table(rooms), *check_cmake(root, rooms)]
    files = 0
    for room, (level, _) in rooms.items():
        top = root / room if level >= 6 else root / "src" / room
        for path in sorted(top.rglob("*")):
            if path.suffix in SOURCE:
                files += 1
                problems += check_file(root, path, room, rooms)
    for directory in sorted((root / "src").iterdir()):
        if directory.is_dir() and directory.name not in rooms:
            problems.append(f"src/{directory.name}: no such room in docs/architecture.md")
    for path in sorted((root / "include/ckpress").glob("*.h")):
        files += 1
        for number, quoted, name in includes(path):
            if quoted or not re.fullmatch(r"ckpress/\w+\.h|std\w+\.h", name):
                problems.append(f"{path.relative_to(root)}:{number}: public headers include public headers and <std*.h> only")
    for problem in problems:
        print(problem)
    print(f"check_layers: {files} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
