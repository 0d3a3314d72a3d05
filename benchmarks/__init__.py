"""The benchmarks of tokenmill: `python -m benchmarks builds|engines|packing|loading|cache`, or all of them with `make bench`.

They are not part of the package. `programs/` holds what is measured of tokenmill, `peers/` what it is compared with; each runs
in a process of its own.
"""
