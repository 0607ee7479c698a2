"""Benchmarks: livegrad and its peers measured in one run. Started by `./bench`."""
