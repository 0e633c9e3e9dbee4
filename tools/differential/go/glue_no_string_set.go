//go:build k129 && !k135

package main

func stringSet(of names) names { return of }
