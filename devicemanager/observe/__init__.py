"""What people see of a node: views, metrics, the terminal and the web page."""
