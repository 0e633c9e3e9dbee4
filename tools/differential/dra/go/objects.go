package main

import (
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// Objects are built as JSON: a version ignores the fields that it does not have.

type object = map[string]any

// decode fills an object of Kubernetes' API.
func decode(described object, into any) error {
	text, err := json.Marshal(described)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

func makePod(described *Pod) (*v1.Pod, error) {
	containers, initial := []object{}, []object{}
	for _, each := range described.Containers {
		container := object{
			"name":      each.Name,
			"resources": object{"claims": each.Claims, "requests": amounts(each.Requests)},
		}
		if each.Init {
			initial = append(initial, container)
		} else {
			containers = append(containers, container)
		}
	}
	spec := object{"containers": containers, "initContainers": initial, "resourceClaims": entries(described.Claims)}
	if described.PodGroup != "" {
		spec["schedulingGroup"] = object{"podGroupName": described.PodGroup}
	}
	status := object{}
	statuses := []object{}
	for _, each := range described.Statuses {
		statuses = append(statuses, object{"name": each.Name, "resourceClaimName": each.Claim})
	}
	status["resourceClaimStatuses"] = statuses
	if extended := described.Extended; extended != nil {
		mappings := []object{}
		for _, each := range extended.Mappings {
			mappings = append(mappings, object{
				"containerName": each.Container, "resourceName": each.Resource, "requestName": each.Request,
			})
		}
		status["extendedResourceClaimStatus"] = object{
			"resourceClaimName": extended.Claim, "requestMappings": mappings,
		}
	}
	pod := &v1.Pod{}
	return pod, decode(object{
		"metadata": object{"name": described.Name, "namespace": described.Namespace, "uid": described.UID},
		"spec":     spec,
		"status":   status,
	}, pod)
}

func entries(claims []PodClaim) []object {
	found := []object{}
	for _, each := range claims {
		entry := object{"name": each.Name}
		if each.Claim != nil {
			entry["resourceClaimName"] = *each.Claim
		} else if each.Template != nil {
			entry["resourceClaimTemplateName"] = *each.Template
		}
		found = append(found, entry)
	}
	return found
}

func amounts(requests map[string]any) map[string]string {
	found := map[string]string{}
	for name, amount := range requests {
		found[name] = fmt.Sprint(amount)
	}
	return found
}

// claimObject describes a ResourceClaim; v1beta1 has the same fields.
func claimObject(claim *Claim) object {
	metadata := object{"namespace": claim.Namespace, "name": claim.Name, "uid": claim.UID}
	if claim.Owner != "" {
		metadata["ownerReferences"] = []object{owner("v1", "Pod", claim.Owner, "uid")}
	} else if claim.OwnerGroup != "" {
		metadata["ownerReferences"] = []object{owner("scheduling.k8s.io/v1alpha2", "PodGroup", claim.OwnerGroup, "name")}
	}
	reserved := []object{}
	for _, uid := range claim.Reserved {
		reserved = append(reserved, object{"resource": "pods", "name": uid, "uid": uid})
	}
	for _, name := range claim.ReservedGroups {
		reserved = append(reserved, object{
			"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": name, "uid": name,
		})
	}
	status := object{"reservedFor": reserved}
	if claim.Results != nil && !claim.Unallocated {
		results := []object{}
		for _, each := range claim.Results {
			result := object{
				"driver": each.Driver, "pool": each.Pool, "device": each.Device, "request": each.Request,
			}
			if len(each.Skip) > 0 {
				result["skipNodeOperations"] = each.Skip
			}
			results = append(results, result)
		}
		status["allocation"] = object{"devices": object{"results": results}}
	}
	return object{"metadata": metadata, "status": status}
}

func owner(version, kind, value, field string) object {
	reference := object{
		"apiVersion": version, "kind": kind, "name": value, "uid": value, "controller": true,
	}
	reference[field] = value
	return reference
}
