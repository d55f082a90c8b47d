"""The one door to pyarrow, so that a missing one is explained once and its lack of types is excused once."""

try:
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.compute as pc  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]
except ImportError as problem:  # pragma: no cover
    raise ImportError("recording needs pyarrow; it comes with: pip install 'broadloom[record]'") from problem

__all__ = ["pa", "pc", "pq"]
