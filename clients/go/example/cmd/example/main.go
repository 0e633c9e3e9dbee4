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
	broken := flag.String("broken", "", "directory with an empty file per broken device")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	plugin := example.New(*dir, *count)
	if *broken != "" {
		go plugin.WatchHealth(ctx, *broken)
	}
	if err := plugin.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
