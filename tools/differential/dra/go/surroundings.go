package main

import (
	"reflect"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const nodeName = "worker"

var theNode = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}

// setValue sets a field of an interface type.
func setValue[T any](field reflect.Value, value T) {
	field.Set(reflect.ValueOf(&value).Elem())
}
