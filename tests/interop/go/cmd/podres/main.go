// Command podres queries a kubelet's PodResources socket and prints the response as JSON.
//
//	podres -socket PATH list | allocatable | get NAME NAMESPACE | list-v1alpha1
//
// A rejection is printed as {"error": {"code", "message"}} with exit code 1.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc/status"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubelet/pkg/apis/podresources/v1alpha1"

	"kubelet-devicemanager/tests/interop/go/internal/api"
	"kubelet-devicemanager/tests/interop/go/internal/lines"
)

// devices is one ContainerDevices entry; NUMA is null if the field is absent.
type devices struct {
	Resource string   `json:"resource"`
	IDs      []string `json:"ids"`
	NUMA     []int64  `json:"numa"`
}

type container struct {
	Name    string    `json:"name"`
	Devices []devices `json:"devices"`
	CPUs    []int64   `json:"cpu_ids"`
	Memory  int       `json:"memory_blocks"`
}

type pod struct {
	Name       string      `json:"name"`
	Namespace  string      `json:"namespace"`
	Containers []container `json:"containers"`
}

type allocatable struct {
	Devices []devices `json:"devices"`
	CPUs    []int64   `json:"cpu_ids"`
	Memory  int       `json:"memory_blocks"`
}

func readDevices(list []*v1.ContainerDevices) []devices {
	out := []devices{}
	for _, d := range list {
		entry := devices{Resource: d.ResourceName, IDs: d.DeviceIds}
		if d.Topology != nil {
			entry.NUMA = []int64{}
			for _, node := range d.Topology.Nodes {
				entry.NUMA = append(entry.NUMA, node.ID)
			}
		}
		out = append(out, entry)
	}
	return out
}

func readPod(p *v1.PodResources) pod {
	out := pod{Name: p.Name, Namespace: p.Namespace, Containers: []container{}}
	for _, c := range p.Containers {
		out.Containers = append(out.Containers, container{
			Name: c.Name, Devices: readDevices(c.Devices), CPUs: c.CpuIds, Memory: len(c.Memory),
		})
	}
	return out
}

func readAlphaPod(p *v1alpha1.PodResources) pod {
	out := pod{Name: p.Name, Namespace: p.Namespace, Containers: []container{}}
	for _, c := range p.Containers {
		held := []devices{}
		for _, d := range c.Devices {
			held = append(held, devices{Resource: d.ResourceName, IDs: d.DeviceIds})
		}
		out.Containers = append(out.Containers, container{Name: c.Name, Devices: held})
	}
	return out
}

func query(ctx context.Context, socket string, words []string) (any, error) {
	conn, err := api.Dial(socket)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	client := v1.NewPodResourcesListerClient(conn)
	switch {
	case words[0] == "list" && len(words) == 1:
		response, err := client.List(ctx, &v1.ListPodResourcesRequest{})
		pods := []pod{}
		for _, p := range response.GetPodResources() {
			pods = append(pods, readPod(p))
		}
		return pods, err
	case words[0] == "allocatable" && len(words) == 1:
		response, err := client.GetAllocatableResources(ctx, &v1.AllocatableResourcesRequest{})
		return allocatable{
			Devices: readDevices(response.GetDevices()), CPUs: response.GetCpuIds(),
			Memory: len(response.GetMemory()),
		}, err
	case words[0] == "get" && len(words) == 3:
		response, err := client.Get(ctx,
			&v1.GetPodResourcesRequest{PodName: words[1], PodNamespace: words[2]})
		if err != nil {
			return nil, err
		}
		return readPod(response.GetPodResources()), nil
	case words[0] == "list-v1alpha1" && len(words) == 1:
		old := v1alpha1.NewPodResourcesListerClient(conn)
		response, err := old.List(ctx, &v1alpha1.ListPodResourcesRequest{})
		pods := []pod{}
		for _, p := range response.GetPodResources() {
			pods = append(pods, readAlphaPod(p))
		}
		return pods, err
	}
	return nil, fmt.Errorf("unknown command %q", words)
}

func main() {
	socket := flag.String("socket", "/var/lib/kubelet/pod-resources/kubelet.sock",
		"the kubelet's PodResources socket")
	timeout := flag.Duration("timeout", 5*time.Second, "deadline of the call")
	flag.Parse()
	if flag.NArg() == 0 {
		lines.Fatal(fmt.Errorf("a command is missing: list, allocatable, get or list-v1alpha1"))
	}
	ctx, cancel := context.WithTimeout(context.Background(), *timeout)
	defer cancel()
	response, err := query(ctx, *socket, flag.Args())
	code := 0
	if err != nil {
		s := status.Convert(err)
		response = map[string]any{
			"error": map[string]string{"code": s.Code().String(), "message": s.Message()},
		}
		code = 1
	}
	if err := json.NewEncoder(os.Stdout).Encode(response); err != nil {
		lines.Fatal(err)
	}
	os.Exit(code)
}
