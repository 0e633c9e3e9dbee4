package main

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var claimResource = schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceclaims"}

// server is the part of the API server that the manager uses.
type server struct {
	node   *node
	claims map[string]*Claim
	errors map[string]error
}

func newServer(n *node) *server {
	return &server{n, map[string]*Claim{}, map[string]error{}}
}

// get fills a ResourceClaim, or returns the error of the API server.
func (s *server) get(namespace, name string, into any) error {
	s.node.mutex.Lock()
	defer s.node.mutex.Unlock()
	key := namespace + "/" + name
	if err := s.errors[key]; err != nil {
		return err
	}
	claim := s.claims[key]
	if claim == nil {
		return apierrors.NewNotFound(claimResource, name)
	}
	return decode(claimObject(claim), into)
}

// fail sets or clears the error of a ResourceClaim.
func (s *server) fail(op *Op) {
	key := op.Namespace + "/" + op.Name
	switch op.Code {
	case 0:
		delete(s.errors, key)
	case 403:
		s.errors[key] = apierrors.NewForbidden(claimResource, op.Name, errors.New(op.Message))
	case 500:
		s.errors[key] = apierrors.NewInternalError(errors.New(op.Message))
	default:
		s.errors[key] = errors.New(op.Message)
	}
}

// wipe records a DELETE of ResourceSlices.
func (s *server) wipe(options metav1.ListOptions) {
	s.node.mutex.Lock()
	defer s.node.mutex.Unlock()
	s.node.wipes = append(s.node.wipes, options.FieldSelector)
}
