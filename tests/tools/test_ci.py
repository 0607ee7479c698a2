"""`.ci/run` runs the commands of the README in a fresh clone."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def commands(text: str, folder: Path) -> list[str]:
    (folder / "README.md").write_text(text, encoding="utf-8")
    script = f"source {ROOT / 'scripts' / 'readme_commands.sh'}; readme_commands {folder / 'README.md'}"
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout.splitlines()


def test_ci_runs_the_commands_of_the_readme():
    listed = subprocess.run([ROOT / ".ci" / "run", "--list"], capture_output=True, text=True, check=True).stdout
    assert listed.splitlines() == ["./run", "./test"]


def test_commands_are_extracted_without_comments(tmp_path):
    before, after = "# a\n```\n./other first\n```\n", "```\n./bench\n```\n"
    text = f"{before}```sh\n$ ./run --out x   makes it\n./test  # checks it\npip\n```\n{after}"
    assert commands(text, tmp_path) == ["./run --out x", "./test"]
    assert commands("no commands\n", tmp_path) == []


def test_a_clone_does_not_clone_itself():
    environment = {**os.environ, "LIVEGRAD_FRESH_CLONE": "/somewhere"}
    done = subprocess.run([ROOT / ".ci" / "run"], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 2
    assert "/somewhere" in done.stderr


def repository(folder: Path, test: str) -> Path:
    """A small repository whose README names two commands, with an uncommitted file."""
    made = folder / "repository"
    for name in (".ci/run", "scripts/readme_commands.sh"):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, made / name)
    (made / "README.md").write_text("```\n./run     shows\n./test    checks\n```\n")
    for name, text in (
        ("run", 'mkdir out; echo "at home in $HOME: $(ls -A ~ | wc -l) files" > out/index.html'),
        ("test", test),
    ):
        (made / name).write_text(f"#!/bin/sh\n{text}\n")
        (made / name).chmod(0o755)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(made)]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "all"]):
        subprocess.run([*git, *words], check=True)
    (made / "uncommitted").touch()
    return made


def run_ci(made: Path) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "LIVEGRAD_FRESH_CLONE"}
    return subprocess.run([made / ".ci" / "run"], capture_output=True, text=True, env=environment, check=False)


def test_the_commands_run_in_a_clone_of_the_commit_with_an_empty_home(tmp_path):
    shown = 'cat out/index.html; ls; echo "$PWD"; [ -t 0 ] || echo no terminal'
    done = run_ci(repository(tmp_path, shown))
    assert done.returncode == 0, done.stderr
    assert ": 0 files" in done.stdout
    assert "no terminal" in done.stdout
    assert "uncommitted" not in done.stdout
    assert str(tmp_path / "repository") not in done.stdout
    assert done.stdout.index("━━ ./run") < done.stdout.index("━━ ./test")
    clone = next(line for line in done.stdout.splitlines() if line.endswith("/livegrad"))
    assert not Path(clone).exists()


def test_a_failing_command_fails_the_run(tmp_path):
    done = run_ci(repository(tmp_path, "exit 3"))
    assert done.returncode == 1
    assert "━━ ./test: " in done.stdout
