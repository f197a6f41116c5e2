"""B35, the report's part: bytes that are no UTF-8 are shown with the replacement mark and the page stays valid."""

from __future__ import annotations

from pathlib import Path

import pytest

from report.conftest import build
from report.helpers_report import Sweep, parse_html, words_of
from sidewinder.files import raw
from sidewinder.files.layout import RunFolder
from sidewinder.model import Output

SPLIT = "ä".encode()  # cut between its two bytes where the head ends
NOISE = b"\xc2\x20 \xff\xfe banner \x92 nul \x00 escape \x1b[1m bell \x07 c1 \xc2\x85 end"


def test_odd_bytes_show_as_replacement_marks_in_a_valid_page(tmp_path: Path) -> None:
    sweep = Sweep(str(tmp_path))
    point = sweep.point("noisy", threads=1)
    text = raw.display(Output(NOISE + SPLIT[:1], SPLIT[1:] + b"\nlast line \xe9", len(NOISE) + 400), 8000)
    sweep.write(point, sweep.failed(point, "measurement", f"said {NOISE.decode('latin-1')}", stderr=text))
    quiet = sweep.point("quiet", threads=2)
    sweep.write(quiet, sweep.ok(quiet))
    html = build(sweep).html
    tree = parse_html(html)
    (log,) = tree.xpath('//section[@id="open"]//pre')
    assert "\ufffd" in words_of(log)
    assert "last line \ufffd" in words_of(log)
    assert not set(html) & {chr(c) for c in (*range(9), 11, 12, *range(14, 32), *range(127, 160))}
    assert words_of(tree.xpath("//h1")[0]) == "1 of 2 measured"


@pytest.mark.parametrize("data", [NOISE, b"\xff" * 300, "\ud800 \udfff".encode("utf-16-le", "surrogatepass")])
def test_a_log_in_no_encoding_is_read_where_there_is_no_record(tmp_path: Path, data: bytes) -> None:
    sweep = Sweep(str(tmp_path))
    point = sweep.point("gone", threads=1)
    path = Path(RunFolder(sweep.root).log("local", point.run_id))
    path.parent.mkdir(parents=True)
    path.write_bytes(b"started\n" + data + b"\n")
    tree = parse_html(build(sweep).html)
    assert "started" in words_of(tree.xpath('//section[@id="open"]//pre')[0])


def test_a_lone_surrogate_in_a_record_reaches_page_and_tables_as_a_mark(tmp_path: Path) -> None:
    sweep = Sweep(str(tmp_path))
    point = sweep.point("half", threads=1)
    record = sweep.ok(point, warnings=["file \ud83d name"])
    record["device"]["cpu"] = "half \udc00 a name"
    sweep.write(point, record)
    built = build(sweep)
    assert "half \ufffd a name" in built.html
    csv = (built.folder / "summary/points.csv").read_text(encoding="utf-8")
    assert "half \ufffd a name" in csv
    assert "file \ufffd name" in csv
