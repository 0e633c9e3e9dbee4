// Controllers for nodes and pods, wired by hand: the whole kube-controller-manager cannot be built
// from published modules.
package main

import (
	"context"
	"flag"
	"os"
	"os/signal"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	cacheddiscovery "k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/cronjob"
	"k8s.io/kubernetes/pkg/controller/daemon"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/disruption"
	"k8s.io/kubernetes/pkg/controller/job"
	"k8s.io/kubernetes/pkg/controller/namespace"
	"k8s.io/kubernetes/pkg/controller/nodelifecycle"
	"k8s.io/kubernetes/pkg/controller/podgc"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/pkg/controller/resourcequota"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/controller/statefulset"
	"k8s.io/kubernetes/pkg/controller/tainteviction"
	"k8s.io/kubernetes/pkg/controller/ttl"
	quotainstall "k8s.io/kubernetes/pkg/quota/v1/install"
)

const resync = 12 * time.Hour

func main() {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the API server")
	grace := flag.Duration("node-monitor-grace-period", 50*time.Second, "as the controller manager's")
	podGC := flag.Duration("pod-gc-period", 20*time.Second, "how often pods of lost nodes are looked for; quarantine is twice that")
	klog.InitFlags(nil)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	must(err)
	config.QPS, config.Burst = 500, 1000
	config.ContentType = "application/vnd.kubernetes.protobuf"
	run(ctx, config, *grace, *podGC)
	<-ctx.Done()
}

func run(ctx context.Context, config *rest.Config, grace, podGC time.Duration) {
	client := kubernetes.NewForConfigOrDie(config)
	plain := rest.CopyConfig(config)
	plain.ContentType = ""
	discovery := client.Discovery()
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(cacheddiscovery.NewMemCacheClient(discovery))
	go wait.Until(mapper.Reset, 30*time.Second, ctx.Done())
	meta := metadata.NewForConfigOrDie(config)
	shared := informers.NewSharedInformerFactory(client, resync)
	metaShared := metadatainformer.NewSharedInformerFactory(meta, resync)
	both := informerfactory.NewInformerFactory(shared, metaShared)
	started := make(chan struct{})
	core, apps, batch := shared.Core().V1(), shared.Apps().V1(), shared.Batch().V1()

	lifecycle, err := nodelifecycle.NewNodeLifecycleController(ctx, shared.Coordination().V1().Leases(),
		core.Pods(), core.Nodes(), apps.DaemonSets(), client, 5*time.Second, 60*time.Second, grace, 0.1, 0.01, 50, 0.55)
	must(err)
	eviction, err := tainteviction.New(ctx, client, core.Pods(), core.Nodes(), "taint-eviction-controller")
	must(err)
	daemons, err := daemon.NewDaemonSetsController(ctx, apps.DaemonSets(), apps.ControllerRevisions(), core.Pods(),
		core.Nodes(), client, flowcontrol.NewBackOff(time.Second, 15*time.Minute))
	must(err)
	deployments, err := deployment.NewDeploymentController(ctx, apps.Deployments(), apps.ReplicaSets(), core.Pods(), client)
	must(err)
	jobs, err := job.NewController(ctx, core.Pods(), batch.Jobs(), client)
	must(err)
	cronJobs, err := cronjob.NewControllerV2(ctx, batch.Jobs(), batch.CronJobs(), client)
	must(err)
	accounts, err := serviceaccount.NewServiceAccountsController(core.ServiceAccounts(), core.Namespaces(), client,
		serviceaccount.DefaultServiceAccountsControllerOptions())
	must(err)
	scales, err := scale.NewForConfig(plain, mapper, dynamic.LegacyAPIPathResolverFunc, scale.NewDiscoveryScaleKindResolver(discovery))
	must(err)
	orphaned := newCollector(meta, shared)
	quota := quotainstall.NewQuotaConfigurationForControllers(generic.ListerFuncForResourceFunc(shared.ForResource))
	quotas, err := resourcequota.NewController(ctx, &resourcequota.ControllerOptions{
		QuotaClient:               client.CoreV1(),
		ResourceQuotaInformer:     core.ResourceQuotas(),
		ResyncPeriod:              controller.StaticResyncPeriodFunc(5 * time.Minute),
		InformerFactory:           both,
		ReplenishmentResyncPeriod: controller.StaticResyncPeriodFunc(resync),
		DiscoveryFunc:             discovery.ServerPreferredNamespacedResources,
		IgnoredResourcesFunc:      quota.IgnoredResources,
		InformersStarted:          started,
		Registry:                  generic.NewRegistry(quota.Evaluators()),
		UpdateFilter:              quotainstall.DefaultUpdateFilter(),
	})
	must(err)
	namespaces := namespace.NewNamespaceController(ctx, client, meta, discovery.ServerPreferredNamespacedResources,
		core.Namespaces(), 5*time.Minute, v1.FinalizerKubernetes)
	budgets := disruption.NewDisruptionController(ctx, core.Pods(), shared.Policy().V1().PodDisruptionBudgets(),
		core.ReplicationControllers(), apps.ReplicaSets(), apps.Deployments(), apps.StatefulSets(), client, mapper, scales, discovery)
	sets := statefulset.NewStatefulSetController(ctx, core.Pods(), apps.StatefulSets(), core.PersistentVolumeClaims(),
		apps.ControllerRevisions(), client)
	replicas := replicaset.NewReplicaSetController(ctx, apps.ReplicaSets(), core.Pods(), client, replicaset.BurstReplicas)
	orphans := podgc.NewPodGCInternal(ctx, client, core.Pods(), core.Nodes(), 12500, podGC, 2*podGC)
	ttls := ttl.NewTTLController(ctx, core.Nodes(), client)

	for _, start := range []func(){
		func() { lifecycle.Run(ctx) },
		func() { eviction.Run(ctx) },
		func() { daemons.Run(ctx, 2) },
		func() { deployments.Run(ctx, 5) },
		func() { jobs.Run(ctx, 5) },
		func() { cronJobs.Run(ctx, 5) },
		func() { accounts.Run(ctx, 1) },
		func() { orphaned.run(ctx, shared) },
		func() { quotas.Run(ctx, 5) },
		func() { quotas.Sync(ctx, discovery.ServerPreferredNamespacedResources, 30*time.Second) },
		func() { namespaces.Run(ctx, 10) },
		func() { budgets.Run(ctx) },
		func() { sets.Run(ctx, 5) },
		func() { replicas.Run(ctx, 5) },
		func() { orphans.Run(ctx) },
		func() { ttls.Run(ctx, 5) },
	} {
		go start()
	}
	shared.Start(ctx.Done())
	metaShared.Start(ctx.Done())
	close(started)
}

func must(err error) {
	if err != nil {
		klog.Fatal(err)
	}
}
