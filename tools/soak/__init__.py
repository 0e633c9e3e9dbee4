"""A soak: pods and plugins come and go for long, and nothing may pile up.

What grows, or what ``self_check`` finds, fails; a time never does.
"""
