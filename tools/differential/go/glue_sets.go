//go:build k126

package main

import "k8s.io/apimachinery/pkg/util/sets"

type names = sets.Set[string]

func newNames() names { return sets.New[string]() }
