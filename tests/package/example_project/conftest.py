"""The files beside this one are checked for types, by .ci/release.py, and never imported."""

collect_ignore_glob = ["*.py"]
