"""Adapters to other frameworks, one module for each; a module needs the extra of its name.

Only this package imports these frameworks.
"""
