"""Why a pod got these devices, or none: as data, as text and as JSON."""
