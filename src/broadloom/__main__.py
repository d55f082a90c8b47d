"""`broadloom` and `python -m broadloom`: the command line, or a hint how to install it."""

import sys

from broadloom.extras import missing_package

NOT_SUPPORTED = 3
INTERRUPTED = 130


def main() -> None:
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401

        from broadloom.cli.main import main as run_command_line
    except ModuleNotFoundError as missing:
        if missing.name not in ("rich", "typer"):
            raise
        print(f"broadloom: {missing_package(missing.name, 'cli')}", file=sys.stderr)
        sys.exit(NOT_SUPPORTED)
    except KeyboardInterrupt:  # imports take long enough for Ctrl-C
        sys.exit(INTERRUPTED)
    run_command_line()


if __name__ == "__main__":
    main()
