package main

import (
	"net"
	"os"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// services has the name in a scenario of each gRPC service that a kubelet may call.
var services = map[string]string{
	"k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin":      "v1",
	"k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin": "v1beta1",
	"v1alpha3.Node":              "v1alpha4",
	"v1alpha1.DRAResourceHealth": "health",
	"v1.DRAResourceHealth":       "health-v1",
}

const (
	prepareMethod   = "NodePrepareResources"
	unprepareMethod = "NodeUnprepareResources"
)

// driver is a driver's process. It handles messages as bytes, so that one program fits all versions
// of the API.
type driver struct {
	node   *node
	key    string
	spec   *Instance
	socket string

	// registered has the services of the last registration.
	registered []string
	isWatched  bool

	mutex     sync.Mutex
	server    *grpc.Server
	behaviour map[string]*Behaviour
	watched   []*healthWatch
}

// healthWatch is a health stream that the driver serves.
type healthWatch struct {
	reports chan []byte
	ended   <-chan struct{}
}

func (d *driver) listen() error {
	if d.server != nil {
		return nil
	}
	_ = os.Remove(d.socket)
	listener, err := net.Listen("unix", d.socket)
	if err != nil {
		return err
	}
	// A server that stops before it serves closes its listener later: that must not remove the
	// socket of the next one.
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	d.server = grpc.NewServer(grpc.ForceServerCodec(bytesCodec{}), grpc.UnknownServiceHandler(d.handle))
	go d.server.Serve(listener)
	return nil
}

func (d *driver) stop() {
	if d.server != nil {
		d.server.Stop()
		d.server = nil
	}
}

func (d *driver) handle(_ any, stream grpc.ServerStream) error {
	path, _ := grpc.MethodFromServerStream(stream)
	service, method, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	version := services[service]
	if !slices.Contains(d.spec.Serves, version) {
		return status.Errorf(codes.Unimplemented, "unknown service %s", service)
	}
	request := []byte{}
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	if method == "NodeWatchResources" {
		return d.watch(stream)
	}
	response, err := d.call(stream, version, method, claimsOf(request))
	if err != nil {
		return err
	}
	return stream.SendMsg(&response)
}

func (d *driver) call(stream grpc.ServerStream, version, method string, claims []claim) ([]byte, error) {
	d.node.called(d.key, version, method, claims)
	d.mutex.Lock()
	behaviour := *d.behaviour[method]
	d.mutex.Unlock()
	if behaviour.Block {
		released := make(chan struct{})
		d.node.blocked <- blockedCall{d.key, released}
		select {
		case <-released:
		case <-stream.Context().Done():
		}
	}
	if behaviour.Fail != nil {
		return nil, status.Error(behaviour.Fail.Code, behaviour.Fail.Message)
	}
	if behaviour.Hang {
		<-stream.Context().Done()
		return nil, stream.Context().Err()
	}
	entries := []namedEntry{}
	for _, each := range claims {
		if !slices.Contains(behaviour.Skip, each.uid) {
			entries = append(entries, namedEntry{each.uid, behaviour.Claims[each.uid]})
		}
	}
	for uid, entry := range behaviour.Extra {
		entries = append(entries, namedEntry{uid, entry})
	}
	if method == unprepareMethod {
		return responseOf(entries, unprepared), nil
	}
	return responseOf(entries, func(entry Entry) []byte { return prepared(entry, version == "v1") }), nil
}

// watch serves a health stream until the connection ends, or the driver ends it.
func (d *driver) watch(stream grpc.ServerStream) error {
	own := &healthWatch{make(chan []byte), stream.Context().Done()}
	d.mutex.Lock()
	d.watched = append(d.watched, own)
	d.mutex.Unlock()
	defer func() {
		d.mutex.Lock()
		d.watched = slices.DeleteFunc(d.watched, func(each *healthWatch) bool { return each == own })
		d.mutex.Unlock()
	}()
	// The kubelet's call returns only with the headers.
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	for {
		select {
		case report, more := <-own.reports:
			if !more {
				return nil
			}
			if err := stream.SendMsg(&report); err != nil {
				return err
			}
		case <-own.ended:
			return nil
		}
	}
}

// streams returns the health streams that the driver serves.
func (d *driver) streams() []*healthWatch {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return slices.Clone(d.watched)
}
