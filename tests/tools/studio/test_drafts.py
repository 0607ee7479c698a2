"""Documents: what pages edit goes to a draft by itself, and to the file only when a page says so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import livegrad as lg
from livegrad.diagnostics import UsageError
from livegrad.tools.studio.drafts import Draft, draft_of, has_newer_draft
from tests.tools.studio.client import TestPage


@pytest.fixture
def path(tmp_path: Path) -> Path:
    engine = lg.Engine()
    engine.add(lg.block(lambda x=4.0: x * 2.0, name="double"))
    engine.save(tmp_path / "scene.lg")
    return tmp_path / "scene.lg"


def document(page: TestPage) -> dict[str, object]:
    return (page.history or page.snapshot["history"])["document"]


def test_edits_go_to_a_draft_and_saving_to_the_file(path):
    original = path.read_text()
    with lg.studio(path, trust=True, open_browser=False) as studio, TestPage(studio) as page:
        assert document(page) == {"name": "scene.lg", "state": "saved", "problem": "", "draft": False}
        page.edit({"op": "set", "pin": [page.id("double"), "x"], "value": 7})
        page.wait(lambda: document(page)["state"] == "drafted")
        assert path.read_text() == original
        assert "x = 7.0" in draft_of(path).read_text()
        assert page.ask({"type": "save"})["type"] == "done"
        page.wait(lambda: document(page)["state"] == "saved")
        assert "x = 7.0" in path.read_text()
        assert not draft_of(path).exists()


def test_a_newer_draft_is_offered_and_restored(path):
    engine = lg.load_document(path).engine(trust=True)
    engine.set(engine.graph.blocks["double"]["x"], 9.0)
    engine.save(draft_of(path))
    assert has_newer_draft(path)
    with lg.studio(path, trust=True, open_browser=False) as studio, TestPage(studio) as page:
        assert document(page)["draft"] is True
        assert page.input("double", "x")["value"] == 4.0
        assert page.ask({"type": "restore"})["type"] == "done"
        page.wait(lambda: page.input("double", "x")["value"] == 9.0)
        assert page.snapshot["title"] == "scene.lg"
    os.utime(path)
    assert not has_newer_draft(path)


def test_the_code_of_a_draft_runs_only_after_agreement(path, tmp_path):
    marker = tmp_path / "ran"
    draft = path.read_text().replace("recorded = lambda", f"open({str(marker)!r}, 'w'); recorded = lambda")
    assert draft != path.read_text()
    draft_of(path).write_text(draft)
    assert has_newer_draft(path)
    with lg.studio(path, trust=True, open_browser=False) as studio, TestPage(studio) as page:
        assert page.ask({"type": "restore"})["type"] == "done"
        waiting = next(message["untrusted"] for message in page.messages if message["type"] == "gallery")
        assert "open(" in waiting["functions"]["double"]
        assert not marker.exists()
        page.ask({"type": "trust"})
        page.wait(marker.exists)
        assert page.snapshot["title"] == "scene.lg"


def test_only_documents_are_saved_and_only_with_permission(path):
    with lg.studio(lg.Engine(), open_browser=False) as studio, TestPage(studio) as page:
        assert page.ask({"type": "save"})["error"]["message"] == "this graph was not opened from a document"
        assert page.ask({"type": "restore"})["error"]["message"] == "there is no newer draft"
    with lg.studio(path, trust=True, open_browser=False, permission="tune") as studio, TestPage(studio) as page:
        assert page.ask({"type": "save"})["type"] == "rejected"


def test_drafts_wait_for_a_pause_and_report_what_cannot_be_saved(path):
    engine = lg.load_document(path).engine(trust=True)
    time = [0.0]
    draft = Draft(engine, path, now=lambda: time[0])
    draft.note_edit()
    draft.update()
    assert (draft.state, draft_of(path).exists(), draft.seconds_until_due()) == ("edited", False, 1.0)
    time[0] = 1.0
    draft.update()
    assert (draft.state, draft_of(path).exists(), draft.seconds_until_due()) == ("drafted", True, None)
    unknown = object()
    engine.add(lg.block(lambda y=1.0: y * bool(unknown), name="unsaved"))
    draft.write()
    assert draft.state == "failed"
    assert "`unknown`" in draft.problem


@pytest.mark.parametrize("text", ["", "livegrad = 99\nkind = 'engine'", "livegrad = 1\nkind = 'engine'\n[blocks.a]"])
def test_damaged_and_newer_documents_open_nothing(tmp_path, text):
    (tmp_path / "scene.lg").write_text(text)
    with pytest.raises(UsageError, match=r"newer version|not a document|damaged"):
        lg.studio(tmp_path / "scene.lg", open_browser=False)
