"""The documentation as a site: what README and docs say, and a reference made of the code."""
