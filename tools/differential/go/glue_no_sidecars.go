//go:build !k128

package main

import v1 "k8s.io/api/core/v1"

// Up to 1.27, the API drops the field of restartable init containers.

func makeRestartable(*v1.Container) {}

func isRestartable(*v1.Container) bool { return false }
