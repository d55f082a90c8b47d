"""The optional packages of Broadloom, by the extra that brings them, and the hint for a missing one."""

EXTRAS = {
    "cli": ("rich", "typer"),
    "chat": ("textual",),
    "record": ("pyarrow",),
    "pipeline": ("numba", "numpy", "pandas", "polars", "pyarrow", "pyspark"),
    "sim": ("matplotlib", "networkx", "scipy"),
    "web": ("nicegui", "pyarrow"),
}


def install_hint(extra: str) -> str:
    return f"in a checkout of Broadloom, run: pip install '.[{extra}]'"


def missing_package(package: str, extra: str = "") -> str:
    """The error message for a package that is not installed. By default, the first extra that has it is suggested."""
    extra = extra or next((name for name, packages in EXTRAS.items() if package in packages), "all")
    return f"{package} is not installed; {install_hint(extra)}"
