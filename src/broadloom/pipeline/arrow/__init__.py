"""Pure functions from Arrow table to Arrow table. Spark runs them inside tasks; tests run them without Spark."""
