// Command example serves the plugin of this module.
package main

import (
	"context"
	"flag"
	"log"
	"os/signal"
	"syscall"

	"kubelet-devicemanager/clients/go/example"
)

func main() {
	dir := flag.String("dir", "/var/lib/kubelet/device-plugins", "the kubelet's plugin directory")
	count := flag.Int("count", 4, "number of devices")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := example.New(*dir, *count).Run(ctx); err != nil {
		log.Fatal(err)
	}
}
