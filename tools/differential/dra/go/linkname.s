// This file lets Go accept functions without a body (go:linkname).
