"""`broadloom` and `python -m broadloom`: the command line, or a hint how to install it."""

import sys

from broadloom.extras import missing_package

NOT_SUPPORTED = 3


def main() -> None:
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ModuleNotFoundError as missing:
        print(f"broadloom: {missing_package(missing.name or 'typer', 'cli')}", file=sys.stderr)
        sys.exit(NOT_SUPPORTED)
    from broadloom.cli.main import main as run_command_line

    run_command_line()


if __name__ == "__main__":
    main()
