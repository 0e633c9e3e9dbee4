//go:build k129 && !k135

package main

import "k8s.io/apimachinery/pkg/util/sets"

func stringSet(of sets.Set[string]) sets.Set[string] { return of }
