package main

import (
	"reflect"
	"unsafe"
)

// inside returns a field of a structure of the kubelet, exported or not, as a settable value. Each
// name but the last leads through a pointer or an interface.
func inside(of any, names ...string) reflect.Value {
	value := reflect.ValueOf(of)
	for _, name := range names {
		for value.Kind() == reflect.Pointer || value.Kind() == reflect.Interface {
			value = value.Elem()
		}
		value = value.FieldByName(name)
		value = reflect.NewAt(value.Type(), unsafe.Pointer(value.UnsafeAddr())).Elem()
	}
	return value
}
