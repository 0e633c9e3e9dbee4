"""Development tools: page generators, test harnesses and benchmarks. They are not installed."""
