//go:build !k129

package main

import "k8s.io/apimachinery/pkg/util/sets"

// stringSet converts a set, because the managers up to 1.28 take the older type.
func stringSet(of sets.Set[string]) sets.String { return sets.NewString(of.UnsortedList()...) }
