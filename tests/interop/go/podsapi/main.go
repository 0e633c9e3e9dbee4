// Command podsapi queries a kubelet's Pods API socket and prints pods as JSON.
//
//	podsapi -socket PATH list | get UID | watch
//
// watch prints a line {"event", "pod"} for each event, until stdin is closed. A rejection is
// printed as {"error": {"code", "message"}} with exit code 1.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"os"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubelet/pkg/apis/pods/v1alpha1"
)

type event struct {
	Type string      `json:"event"`
	Pod  *corev1.Pod `json:"pod"`
}

func pod(data []byte) (*corev1.Pod, error) {
	if len(data) == 0 {
		return nil, nil
	}
	found := &corev1.Pod{}
	return found, found.Unmarshal(data)
}

func list(ctx context.Context, client v1alpha1.PodsClient) (any, error) {
	response, err := client.ListPods(ctx, &v1alpha1.ListPodsRequest{})
	if err != nil {
		return nil, err
	}
	pods := []*corev1.Pod{}
	for _, data := range response.Pods {
		found, err := pod(data)
		if err != nil {
			return nil, err
		}
		pods = append(pods, found)
	}
	return pods, nil
}

func get(ctx context.Context, client v1alpha1.PodsClient, uid string) (any, error) {
	response, err := client.GetPod(ctx, &v1alpha1.GetPodRequest{PodUID: uid})
	if err != nil {
		return nil, err
	}
	return pod(response.Pod)
}

// watch prints events; it returns when stdin is closed.
func watch(ctx context.Context, client v1alpha1.PodsClient) error {
	ctx, cancel := context.WithCancel(ctx)
	var ended atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		ended.Store(true)
		cancel()
	}()
	stream, err := client.WatchPods(ctx, &v1alpha1.WatchPodsRequest{})
	for err == nil {
		var next *v1alpha1.WatchPodsEvent
		if next, err = stream.Recv(); err != nil {
			break
		}
		var found *corev1.Pod
		if found, err = pod(next.Pod); err != nil {
			break
		}
		_ = json.NewEncoder(os.Stdout).Encode(event{next.Type.String(), found})
	}
	if ended.Load() {
		return nil
	}
	return err
}

func main() {
	socket := flag.String("socket", "/var/lib/kubelet/pods-api/pods-api.sock", "the kubelet's socket")
	flag.Parse()
	connection, err := grpc.NewClient(
		"unix://"+*socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	client := v1alpha1.NewPodsClient(connection)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var answer any
	switch flag.Arg(0) {
	case "list":
		answer, err = list(ctx, client)
	case "get":
		answer, err = get(ctx, client, flag.Arg(1))
	case "watch":
		err = watch(ctx, client)
	default:
		flag.Usage()
		os.Exit(2)
	}
	if err != nil {
		failure := map[string]string{
			"code": status.Code(err).String(), "message": status.Convert(err).Message()}
		_ = json.NewEncoder(os.Stdout).Encode(map[string]any{"error": failure})
		os.Exit(1)
	}
	if answer != nil {
		_ = json.NewEncoder(os.Stdout).Encode(answer)
	}
}
