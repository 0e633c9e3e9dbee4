//go:build !k126

package main

import "k8s.io/apimachinery/pkg/util/sets"

type names = sets.String

func newNames() names { return sets.NewString() }
