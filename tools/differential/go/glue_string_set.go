//go:build !k129

package main

import "k8s.io/apimachinery/pkg/util/sets"

// stringSet converts a set, because the managers up to 1.28 take the older type.
func stringSet(of names) sets.String {
	found := sets.NewString()
	for name := range of {
		found.Insert(name)
	}
	return found
}
