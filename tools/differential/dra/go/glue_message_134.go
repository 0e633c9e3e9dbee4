//go:build k134 && !k136

package main

import v1 "k8s.io/api/core/v1"

func messageOf(v1.ResourceHealth) string { return "" }
