package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
)

// benchNode is the first line on stdin of `reference bench`.
type benchNode struct {
	NUMANodes    []int  `json:"numa_nodes"`
	Policy       string `json:"policy"`
	Resource     string `json:"resource"`
	PodResources string `json:"pod_resources"`
}

// benchCommand is every later line; one field is set.
type benchCommand struct {
	Admit       *int   `json:"admit"`
	Remove      []int  `json:"remove"`
	Allocatable bool   `json:"allocatable"`
	Register    string `json:"register"`
	Call        string `json:"call"`
	Socket      string `json:"socket"`
}

type benchAnswer struct {
	Nanoseconds int64  `json:"ns"`
	Count       int64  `json:"count"`
	Error       string `json:"error,omitempty"`
}

// benchLines answers each command line with a line.
func benchLines(in *bufio.Scanner, out io.Writer, answer func(*benchCommand) (benchAnswer, error)) error {
	encoder := json.NewEncoder(out)
	if err := encoder.Encode(benchAnswer{}); err != nil {
		return err
	}
	for in.Scan() {
		command := &benchCommand{}
		if err := json.Unmarshal(in.Bytes(), command); err != nil {
			return err
		}
		found, err := answer(command)
		if err != nil {
			found.Error = err.Error()
		}
		if err := encoder.Encode(found); err != nil {
			return err
		}
	}
	return in.Err()
}

// bench serves the device manager and PodResources, and measures admissions. The topology
// manager's Admit is the only part of the kubelet that an admission needs here.
func bench(in io.Reader, out io.Writer) error {
	scanner := bufio.NewScanner(in)
	if !scanner.Scan() {
		return fmt.Errorf("missing description of the node")
	}
	described := &benchNode{}
	if err := json.Unmarshal(scanner.Bytes(), described); err != nil {
		return err
	}
	scenario := &Scenario{
		NUMANodes: described.NUMANodes, Policy: described.Policy, Scope: "container",
	}
	n := &node{scenario: scenario, dir: pluginapi.DevicePluginPath, ready: true}
	if err := n.start(containermap.NewContainerMap(), newNames()); err != nil {
		return err
	}
	lister, _ := podResourcesServers(source{n})
	server := grpc.NewServer()
	podresourcesapi.RegisterPodResourcesListerServer(server, lister)
	listener, err := net.Listen("unix", described.PodResources)
	if err != nil {
		return err
	}
	go server.Serve(listener)
	return benchLines(scanner, out, func(command *benchCommand) (benchAnswer, error) {
		switch {
		case command.Admit != nil:
			return n.benchAdmit(*command.Admit, described.Resource)
		case command.Remove != nil:
			for _, number := range command.Remove {
				n.remove(fmt.Sprint(number))
			}
		case command.Allocatable:
			_, allocatable, _ := capacities(n.manager)
			amount := allocatable[v1.ResourceName(described.Resource)]
			return benchAnswer{Count: amount.Value()}, nil
		}
		return benchAnswer{}, nil
	})
}

func (n *node) benchAdmit(number int, resource string) (benchAnswer, error) {
	pod := makePod(&Pod{UID: fmt.Sprint(number), Containers: []Container{
		{Name: "main", Limits: map[string]int64{resource: 1}},
	}})
	n.mutex.Lock()
	n.pods = append(n.pods, &known{pod: pod, active: true})
	n.mutex.Unlock()
	begin := time.Now()
	result := admitted(n.topology, &lifecycle.PodAdmitAttributes{Pod: pod})
	taken := time.Since(begin)
	if !result.Admit {
		return benchAnswer{}, fmt.Errorf("rejected: %s", result.Message)
	}
	return benchAnswer{Nanoseconds: taken.Nanoseconds()}, nil
}

// benchDevices is a plugin that does as little work as possible.
type benchDevices struct {
	unimplemented
	list *pluginapi.ListAndWatchResponse
}

func (p *benchDevices) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{}, nil
}

func (p *benchDevices) ListAndWatch(_ *pluginapi.Empty, stream pluginapi.DevicePlugin_ListAndWatchServer) error {
	if err := stream.Send(p.list); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (p *benchDevices) Allocate(context.Context, *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	return &pluginapi.AllocateResponse{ContainerResponses: []*pluginapi.ContainerAllocateResponse{{
		Envs:    map[string]string{"BENCH_VISIBLE_DEVICES": "device-00000"},
		Devices: []*pluginapi.DeviceSpec{{ContainerPath: "/dev/bench0", HostPath: "/dev/bench0", Permissions: "rw"}},
	}}}, nil
}

func (p *benchDevices) GetPreferredAllocation(context.Context, *pluginapi.PreferredAllocationRequest) (*pluginapi.PreferredAllocationResponse, error) {
	return &pluginapi.PreferredAllocationResponse{}, nil
}

func (p *benchDevices) PreStartContainer(context.Context, *pluginapi.PreStartContainerRequest) (*pluginapi.PreStartContainerResponse, error) {
	return &pluginapi.PreStartContainerResponse{}, nil
}

const benchSocket = "bench.sock"

// benchPlugin serves one plugin for several kubelets, and is a client of their PodResources.
func benchPlugin(resource string, devices, nodes int, in io.Reader, out io.Writer) error {
	p := &benchDevices{list: &pluginapi.ListAndWatchResponse{}}
	share := (devices + max(nodes, 1) - 1) / max(nodes, 1)
	for number := 0; number < devices; number++ {
		device := &pluginapi.Device{ID: fmt.Sprintf("device-%05d", number), Health: pluginapi.Healthy}
		if nodes > 0 {
			device.Topology = &pluginapi.TopologyInfo{
				Nodes: []*pluginapi.NUMANode{{ID: int64(number / share)}},
			}
		}
		p.list.Devices = append(p.list.Devices, device)
	}
	server := grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(server, p)
	clients := map[string]podresourcesapi.PodResourcesListerClient{}
	return benchLines(bufio.NewScanner(in), out, func(command *benchCommand) (benchAnswer, error) {
		if command.Register != "" {
			return benchAnswer{}, benchRegister(server, command.Register, resource)
		}
		client := clients[command.Socket]
		if client == nil {
			conn, err := grpc.Dial("unix:"+command.Socket,
				grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				return benchAnswer{}, err
			}
			client = podresourcesapi.NewPodResourcesListerClient(conn)
			clients[command.Socket] = client
		}
		return benchCall(client, command.Call)
	})
}

func benchRegister(server *grpc.Server, dir, resource string) error {
	listener, err := net.Listen("unix", filepath.Join(dir, benchSocket))
	if err != nil {
		return err
	}
	go server.Serve(listener)
	p := &served{resource: resource, socket: benchSocket}
	if reply := p.register(filepath.Join(dir, "kubelet.sock"), ""); reply.Text != "" {
		return fmt.Errorf("%s", reply.Text)
	}
	return nil
}

func benchCall(client podresourcesapi.PodResourcesListerClient, method string) (benchAnswer, error) {
	ctx := context.Background()
	limit := grpc.MaxCallRecvMsgSize(64 << 20)
	var err error
	begin := time.Now()
	switch method {
	case "List":
		_, err = client.List(ctx, &podresourcesapi.ListPodResourcesRequest{}, limit)
	case "GetAllocatableResources":
		_, err = client.GetAllocatableResources(ctx, &podresourcesapi.AllocatableResourcesRequest{}, limit)
	default:
		err = fmt.Errorf("unknown method %q", method)
	}
	return benchAnswer{Nanoseconds: time.Since(begin).Nanoseconds()}, err
}

func benchMain(arguments []string) (err error) {
	if slices.Equal(arguments, []string{"bench"}) {
		return bench(os.Stdin, os.Stdout)
	}
	if len(arguments) != 4 || arguments[0] != "plugin" {
		return fmt.Errorf("usage: reference [bench | plugin RESOURCE DEVICES NODES]")
	}
	var devices, nodes int
	if _, err := fmt.Sscan(arguments[2]+" "+arguments[3], &devices, &nodes); err != nil {
		return err
	}
	return benchPlugin(arguments[1], devices, nodes, os.Stdin, os.Stdout)
}
