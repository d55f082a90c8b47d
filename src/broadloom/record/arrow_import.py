"""The only import of pyarrow, so that a missing installation is explained in one place."""

from broadloom.extras import missing_package

try:
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.compute as pc  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]
except ImportError as problem:  # pragma: no cover
    raise ImportError(missing_package("pyarrow", "record")) from problem

__all__ = ["pa", "pc", "pq"]
