"""The public Python API, which `ternhost` exports: runs, their parts and results, and cards."""
