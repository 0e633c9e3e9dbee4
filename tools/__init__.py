"""Development tools: generators of pages, test harnesses, benchmarks. Not installed."""
