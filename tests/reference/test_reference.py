# SPDX-License-Identifier: Apache-2.0
"""Every golden file, and the page's own example, decoded by the reference; every damaged bit noticed by it."""
import re
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))

import container  # noqa: E402
import decode  # noqa: E402
import quantizers  # noqa: E402

GOLDEN = sorted((ROOT / "tests" / "golden").glob("v*/*.txt"))
PAGE = (ROOT / "docs" / "format.md").read_text(encoding="utf-8")


def block(name):
    return re.search(rf"```{name}\n(.*?)```", PAGE, re.S).group(1)


def example():
    return bytes.fromhex("".join(line[5:52] for line in block("hex").splitlines()))


def test_there_are_golden_files():
    assert len(GOLDEN) > 5


@pytest.mark.parametrize("expected", GOLDEN, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_golden(expected):
    bases, hashes = [], {}
    for line in expected.read_text().splitlines():
        word, name = line.split(" ", 1)
        if word == "base":
            bases.append(expected.parent / name)
        else:
            hashes[name] = word
    table, tensors, _ = decode.decode([p.read_bytes() for p in [expected.with_suffix(".ckp"), *bases]])
    assert {r.name: f"{container.h64(b):016x}" for r, b in zip(table, tensors)} == hashes


def test_example():
    table, tensors, tree = decode.decode([example()])
    assert [r.name for r in table] == ["w"]
    assert list(quantizers.to_f32(tensors[0], 12)) == [1, 2, 3, 4]
    assert tree["step"] == 7 and tree["w"].index == 0


def test_powers():
    words = [int(w, 16) for line in block("exp2").splitlines() for w in line.split(":")[1].split()]
    assert words == [p - (1 << 23) for p in quantizers.power_table()]


def test_dtypes_of_the_page():
    rows = re.findall(r"^\| (\d+) \| (\w+) \| (\d+) \| (\d+) \|$", PAGE, re.M)
    assert {int(i): (n, int(b), int(p)) for i, n, b, p in rows} == container.DTYPES


def test_every_bit_of_the_example():
    data = bytearray(example())
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises(container.Bad):
            container.File(bytes(data))
        data[bit // 8] ^= 1 << bit % 8


def test_every_truncation_of_the_example():
    data = example()
    for n in range(len(data)):
        with pytest.raises(container.Bad):
            container.File(data[:n])
