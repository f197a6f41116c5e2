"""B41: a report stops because one result is missing, when the person needs it most (snakemake#1981, bgcflow#111).

The case: 20 planned units, 12 done, 3 failed, 2 never started, 1 broken record, 1 NaN metric, 1 done without a log;
and with 0 done. A NaN metric and a lost log are no reason to call a point not measured: what was measured counts, what
was not is absent. So the list read as a sum has 14 of 20; the same list with the last two among the 12 has 12 of 20.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from report.conftest import build
from report.helpers_report import Sweep, parse_html, words_of
from sidewinder.files.layout import RunFolder


def sweep_of(root: Path, plain: int, given_up: int) -> Sweep:
    """``plain`` done, 3 failed, 2 never started, 1 broken, 1 NaN, 1 without log, ``given_up`` holes: 20 in all."""
    kinds = ["done"] * plain + ["failed"] * 3 + ["missing"] * 2 + ["broken", "nan", "no-log"] + ["hole"] * given_up
    assert len(kinds) == 20
    sweep = Sweep(str(root))
    for i, kind in enumerate(kinds):
        point = sweep.point(f"{kind}-{i:02}", model=f"m{i % 2}", threads=1 + i // 2, quantization="q4_1")
        record = sweep.ok(point)
        raw = Path(RunFolder(sweep.root).raw("local", point.run_id))
        raw.mkdir(parents=True)
        (raw / "1.stderr").write_text("log")
        if kind == "failed":
            sweep.write(point, sweep.failed(point, "measurement", "exit code 1", stderr=f"line one\nthe reason {i}\n"))
        elif kind == "broken":
            sweep.write(point, json.dumps(record).encode()[:200])
        elif kind == "nan":
            record["metrics"]["decode_tps"] = float("nan")
            record["samples"]["decode_tps"] = [float("nan")] * 5
            sweep.write(point, record)
        elif kind == "no-log":
            shutil.rmtree(raw)
            del record["raw"]
            sweep.write(point, record)
        elif kind == "hole":
            sweep.write(point, sweep.hole(point, "timed out after 10 s"))
        elif kind == "done":
            sweep.write(point, record)
    return sweep


@pytest.mark.parametrize(("plain", "given_up", "done"), [(12, 0, 14), (10, 2, 12)], ids=["as a sum", "12 of 20"])
def test_a_partial_sweep_has_a_whole_report(tmp_path: Path, plain: int, given_up: int, done: int) -> None:
    built = build(sweep_of(tmp_path, plain, given_up))
    tree = parse_html(built.html)

    assert words_of(tree.xpath("//h1")[0]) == f"{done} of 20 measured"
    assert not built.summary.is_complete  # the exit code hangs on this
    total = built.summary.total
    assert (total.done, total.failed, total.never) == (done, 3, 3 + given_up)

    cards = {c.xpath('.//code[@class="id"]')[0].text: words_of(c) for c in tree.xpath('//section[@id="open"]//ol/li')}
    assert len(cards) == 20 - done
    for run_id, words in cards.items():
        assert words.startswith("local")
        assert f"sidewinder measure {tmp_path}/records/local/{run_id}.json" in words
        kind = run_id.rsplit("-", 1)[0]
        said = {"failed": "the reason", "missing": "not started", "broken": "unreadable", "hole": "timed out"}[kind]
        assert said in words

    # gaps, not zeros: a cross for each point without a number, the NaN in decode only
    crosses = {name: sum(words_of(h).startswith(name) for h in tree.xpath("//h4")) for name in ("Prefill", "Decode")}
    assert crosses == {"Prefill": 1, "Decode": 1}
    labels = [str(s) for s in tree.xpath('//svg[@class="chart"]/@aria-label')]
    assert ["not measured" in label.lower() for label in labels] == [True, True]
    table = pd.read_csv(tmp_path / "summary/points.csv")
    assert table["prefill_tps"].notna().sum() == done
    assert table["decode_tps"].notna().sum() == done - 1
    assert not (table[["prefill_tps", "decode_tps"]] == 0).any(axis=None)

    # means state their n
    assert "(n 5)" in words_of(tree.xpath('//section[@id="results"]//table')[0])
    # the same numbers everywhere
    holes = json.loads((tmp_path / "summary/holes.json").read_text())
    assert (holes["planned"], holes["done"], len(holes["open"])) == (20, done, 20 - done)
    assert (table["done"].sum(), len(table)) == (done, 20)


def test_with_nothing_done_it_is_built_all_the_same(tmp_path: Path) -> None:
    sweep = Sweep(str(tmp_path))
    for i in range(20):
        sweep.point(f"p{i:02}", threads=i + 1)
    built = build(sweep)
    tree = parse_html(built.html)
    assert words_of(tree.xpath("//h1")[0]) == "0 of 20 measured"
    assert len(tree.xpath('//section[@id="open"]//ol/li')) == 20
    assert tree.xpath('//svg[@class="chart"]') == []
