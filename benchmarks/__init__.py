"""The benchmarks of tokenmill: `python -m benchmarks builds|engines|parsing|packing|loading|cache`, or all with `make bench`.

They are not part of the package. `programs/` holds what is measured of tokenmill, `peers/` what it is compared with; each runs
in a process of its own.
"""
