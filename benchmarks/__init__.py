"""The benchmarks of tokenmill: `python -m benchmarks builds|engines|parsing|packing|loading|cache|exchange`, or all with
`make bench`; and `python -m benchmarks peers`, or `make bench-peers`.

They are not part of the package. `programs/` holds what is measured of tokenmill, `peers/` what it is compared with; each runs
in a process of its own.
"""
