module kubelet-devicemanager/clients/go

go 1.22
