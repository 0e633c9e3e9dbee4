//! The DevicePlugin service over virtual devices; it reports each call as an event.

use std::{collections::HashMap, pin::Pin};

use serde_json::{json, Value};
use tokio_stream::{wrappers::WatchStream, Stream, StreamExt};
use tonic::{Request, Response, Status};

use crate::api::{self, device_plugin_server::DevicePlugin};
use crate::events::emit;
use crate::inventory::{devices, Inventory};

type Answer<T> = Result<Response<T>, Status>;

#[derive(Clone)]
pub struct Service {
    pub resource: String,
    pub options: api::DevicePluginOptions,
    pub inventory: Inventory,
}

impl Service {
    pub fn new(resource: String, options: api::DevicePluginOptions, inventory: Inventory) -> Self {
        Self {
            resource,
            options,
            inventory,
        }
    }

    fn emit(&self, event: &str, mut fields: Value) {
        fields["resource"] = self.resource.clone().into();
        emit(event, fields);
    }

    fn check(&self, ids: &[String]) -> Result<(), Status> {
        match ids.iter().find(|id| !self.inventory.has(id)) {
            Some(id) => Err(Status::not_found(format!("no device {id:?} here"))),
            None => Ok(()),
        }
    }

    /// Uses every kind of setting that a plugin can return for a container.
    fn allocation(&self, ids: &[String]) -> api::ContainerAllocateResponse {
        let last = self.resource.rsplit('/').next().unwrap_or_default();
        let variable = format!("{}_DEVICES", last.to_uppercase());
        api::ContainerAllocateResponse {
            envs: HashMap::from([(variable, ids.join(","))]),
            annotations: HashMap::from([(self.resource.clone(), ids.join(","))]),
            mounts: vec![api::Mount {
                container_path: format!("/opt/{last}"),
                host_path: "/usr/share".into(),
                read_only: true,
            }],
            devices: ids.iter().map(|id| null_as(id)).collect(),
            cdi_devices: ids
                .iter()
                .map(|id| api::CdiDevice {
                    name: format!("{}={id}", self.resource),
                })
                .collect(),
            ..Default::default()
        }
    }
}

fn null_as(id: &str) -> api::DeviceSpec {
    api::DeviceSpec {
        container_path: format!("/dev/{id}"),
        host_path: "/dev/null".into(),
        permissions: "rw".into(),
    }
}

#[tonic::async_trait]
impl DevicePlugin for Service {
    async fn get_device_plugin_options(
        &self,
        _: Request<api::Empty>,
    ) -> Answer<api::DevicePluginOptions> {
        self.emit("options", json!({}));
        Ok(Response::new(self.options))
    }

    type ListAndWatchStream =
        Pin<Box<dyn Stream<Item = Result<api::ListAndWatchResponse, Status>> + Send>>;

    async fn list_and_watch(&self, _: Request<api::Empty>) -> Answer<Self::ListAndWatchStream> {
        self.emit("list-opened", json!({}));
        let service = self.clone();
        let lists = WatchStream::new(self.inventory.watch()).map(move |healths| {
            service.emit("list-sent", json!({"devices": healths.len()}));
            Ok(api::ListAndWatchResponse {
                devices: devices(&healths),
            })
        });
        Ok(Response::new(Box::pin(lists)))
    }

    /// Rejects an unknown device.
    async fn allocate(
        &self,
        request: Request<api::AllocateRequest>,
    ) -> Answer<api::AllocateResponse> {
        let mut answer = api::AllocateResponse::default();
        for container in request.into_inner().container_requests {
            let ids = container.devices_ids;
            self.emit("allocate", json!({"ids": ids}));
            self.check(&ids)?;
            answer.container_responses.push(self.allocation(&ids));
        }
        Ok(Response::new(answer))
    }

    /// Prefers the last of the available devices.
    async fn get_preferred_allocation(
        &self,
        request: Request<api::PreferredAllocationRequest>,
    ) -> Answer<api::PreferredAllocationResponse> {
        let mut answer = api::PreferredAllocationResponse::default();
        for container in request.into_inner().container_requests {
            let size = usize::try_from(container.allocation_size).unwrap_or_default();
            let mut chosen = container.must_include_device_i_ds;
            let mut available = container.available_device_i_ds;
            self.emit("prefer", json!({"available": available, "size": size}));
            available.sort();
            available.retain(|id| !chosen.contains(id));
            chosen.extend(available.into_iter().rev());
            chosen.truncate(size);
            answer
                .container_responses
                .push(api::ContainerPreferredAllocationResponse {
                    device_i_ds: chosen,
                });
        }
        Ok(Response::new(answer))
    }

    /// Only reports the call.
    async fn pre_start_container(
        &self,
        request: Request<api::PreStartContainerRequest>,
    ) -> Answer<api::PreStartContainerResponse> {
        let ids = request.into_inner().devices_ids;
        self.emit("prestart", json!({"ids": ids}));
        Ok(Response::new(api::PreStartContainerResponse::default()))
    }
}
