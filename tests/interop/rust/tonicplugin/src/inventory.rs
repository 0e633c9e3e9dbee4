//! The plugin's device list, which all open list streams watch.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

use crate::api::Device;

type Healths = BTreeMap<String, String>;

#[derive(Clone)]
pub struct Inventory(Arc<watch::Sender<Healths>>);

impl Inventory {
    /// Creates `count` healthy devices named `<prefix>-<index>`.
    pub fn new(prefix: &str, count: usize) -> Self {
        let devices = (0..count).map(|index| (format!("{prefix}-{index}"), "Healthy".into()));
        Self(Arc::new(watch::Sender::new(devices.collect())))
    }

    /// Changes or adds a device; health "gone" removes it.
    pub fn set_health(&self, id: &str, health: &str) {
        self.0.send_modify(|devices| {
            if health == "gone" {
                devices.remove(id);
            } else {
                devices.insert(id.into(), health.into());
            }
        });
    }

    pub fn has(&self, id: &str) -> bool {
        self.0.borrow().contains_key(id)
    }

    /// Sends the list now and after each change.
    pub fn watch(&self) -> watch::Receiver<Healths> {
        self.0.subscribe()
    }
}

/// Converts the list to messages of the API, in ID order.
pub fn devices(healths: &Healths) -> Vec<Device> {
    let device = |(id, health): (&String, &String)| Device {
        id: id.clone(),
        health: health.clone(),
        topology: None,
    };
    healths.iter().map(device).collect()
}
