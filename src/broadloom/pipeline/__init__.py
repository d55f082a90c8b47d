"""The pipeline: from tapes to proofs, figures and bills, on Spark.

Needs the extra `pipeline`. Nothing is imported here, so that knowing of the package costs nothing; Spark itself is
imported by the functions that use it. `docs/pipeline.md` describes the tables.
"""
