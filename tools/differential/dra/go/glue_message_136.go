//go:build k136

package main

import v1 "k8s.io/api/core/v1"

func messageOf(device v1.ResourceHealth) string {
	if device.Message == nil {
		return ""
	}
	return *device.Message
}
