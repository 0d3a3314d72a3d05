"""Conformance suites for the contracts of tokenmill, as pytest base classes.

Subclass a suite in a test module, say how to make the thing under test, and inherit its tests. Nothing in the package
imports these modules; they need pytest.
"""
