module kubelet-devicemanager/tests/interop/go/checkpointread

go 1.23.0

require k8s.io/kubernetes v1.32.13

require (
	github.com/davecgh/go-spew v1.1.2-0.20180830191138-d8f796af33cc // indirect
	github.com/fsnotify/fsnotify v1.7.0 // indirect
	github.com/go-logr/logr v1.4.2 // indirect
	golang.org/x/sys v0.26.0 // indirect
	k8s.io/apimachinery v0.0.0 // indirect
	k8s.io/klog/v2 v2.130.1 // indirect
	k8s.io/utils v0.0.0-20241104100929-3ea5e8cea738 // indirect
)

// k8s.io/kubernetes asks for its staging modules at v0.0.0; this one is used here.
replace k8s.io/apimachinery => k8s.io/apimachinery v0.32.13
