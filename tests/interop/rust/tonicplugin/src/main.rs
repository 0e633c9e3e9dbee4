//! A device plugin with virtual devices on tonic, which uses h2 for HTTP/2.
//!
//! It serves first and then registers. See README.md for its events and commands.

mod events;
mod inventory;
mod service;

use std::{env, error::Error, fs, io, path::PathBuf};

use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::UnixListener,
    task::JoinHandle,
};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Endpoint, Server};

use events::emit;
use inventory::Inventory;
use service::Service;

pub mod api {
    tonic::include_proto!("v1beta1");
}

type Failure = Box<dyn Error>;

struct Plugin {
    directory: PathBuf,
    socket: String,
    service: Service,
    server: Option<JoinHandle<()>>,
}

impl Plugin {
    async fn serve(&mut self) -> Result<(), Failure> {
        self.stop().await;
        let path = self.directory.join(&self.socket);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let incoming = UnixListenerStream::new(UnixListener::bind(&path)?);
        let service = api::device_plugin_server::DevicePluginServer::new(self.service.clone());
        self.server = Some(tokio::spawn(async move {
            let served = Server::builder().serve_with_incoming(service, incoming);
            if let Err(error) = served.await {
                emit("serve-failed", json!({"error": error.to_string()}));
            }
        }));
        emit("serving", json!({"endpoint": self.socket}));
        Ok(())
    }

    async fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            server.abort();
            let _ = server.await;
            emit("stopped", json!({}));
        }
    }

    async fn register(&self) -> Result<(), Failure> {
        let kubelet = self.directory.join("kubelet.sock");
        let channel = Endpoint::try_from(format!("unix://{}", kubelet.display()))?
            .connect()
            .await?;
        let request = api::RegisterRequest {
            version: "v1beta1".into(),
            endpoint: self.socket.clone(),
            resource_name: self.service.resource.clone(),
            options: Some(self.service.options),
        };
        api::registration_client::RegistrationClient::new(channel)
            .register(request)
            .await?;
        Ok(())
    }

    async fn announce(&self) {
        match self.register().await {
            Ok(()) => emit("registered", json!({"resource": self.service.resource})),
            Err(error) => emit("register-failed", json!({"error": error.to_string()})),
        }
    }

    /// Executes one line from stdin; false ends the program.
    async fn command(&mut self, words: &[&str]) -> Result<bool, Failure> {
        match words {
            ["health", id, health] => self.service.inventory.set_health(id, health),
            ["register"] => self.announce().await,
            ["restart"] => {
                self.serve().await?;
                self.announce().await;
            }
            ["quit"] => return Ok(false),
            _ => emit("bad-command", json!({"words": words})),
        }
        Ok(true)
    }
}

/// Creates the plugin from flags such as `-dir DIRECTORY -count 2 -prestart`.
fn plugin() -> Result<Plugin, Failure> {
    let mut directory = "/var/lib/kubelet/device-plugins".to_string();
    let mut socket = "tonic-plugin.sock".to_string();
    let mut resource = "vendor.com/gpu".to_string();
    let mut count = 2;
    let mut options = api::DevicePluginOptions::default();
    let mut arguments = env::args().skip(1);
    while let Some(flag) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{flag} needs a value"));
        match flag.as_str() {
            "-dir" => directory = value()?,
            "-socket" => socket = value()?,
            "-resource" => resource = value()?,
            "-count" => count = value()?.parse()?,
            "-prestart" => options.pre_start_required = true,
            "-preferred" => options.get_preferred_allocation_available = true,
            _ => return Err(format!("unknown flag {flag}").into()),
        }
    }
    let last_name = resource.rsplit('/').next().unwrap_or_default();
    let inventory = Inventory::new(last_name, count);
    Ok(Plugin {
        directory: directory.into(),
        socket,
        service: Service::new(resource, options, inventory),
        server: None,
    })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let mut plugin = plugin()?;
    plugin.serve().await?;
    plugin.announce().await;
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let words: Vec<&str> = line.split_whitespace().collect();
        if !plugin.command(&words).await? {
            break;
        }
    }
    plugin.stop().await;
    Ok(())
}
