//! The identity service: who the driver is, what it can, whether it is ready.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::controller::Controller;
use crate::status::{Code, Outcome, Status};

/// Name of the driver, as StorageClasses write it.
pub const NAME: &str = "csi.weir.internal";

/// Key of topology: the location of the server that a machine reaches.
pub const LOCATION_KEY: &str = "csi.weir.internal/location";

/// The identity service.
#[derive(Default)]
pub struct Identity {
    /// The server has answered once. Later it may be away: that is no fault of the driver, which
    /// must not be started anew for it.
    answered: AtomicBool,
}

impl Identity {
    /// Carries out a method of the service.
    ///
    /// # Errors
    /// UNIMPLEMENTED: there is no such method.
    pub fn call(&self, method: &str, controller: Option<&Controller>) -> Outcome<Value> {
        match method {
            "GetPluginInfo" => Ok(json!({
                "name": NAME,
                "vendorVersion": env!("CARGO_PKG_VERSION"),
            })),
            "GetPluginCapabilities" => Ok(capabilities(controller.is_some())),
            "Probe" => Ok(json!({"ready": self.ready(controller)})),
            _ => Err(Status::new(Code::Unimplemented, "there is no such method")),
        }
    }

    fn ready(&self, controller: Option<&Controller>) -> bool {
        let Some(controller) = controller else {
            return true;
        };
        if self.answered.load(Ordering::Relaxed) {
            return true;
        }
        match controller.probe() {
            Ok(()) => {
                self.answered.store(true, Ordering::Relaxed);
                true
            }
            Err(e) => {
                tracing::warn!("not ready: {}", e.message);
                false
            }
        }
    }
}

fn capabilities(controller: bool) -> Value {
    if !controller {
        return json!({});
    }
    let services = ["CONTROLLER_SERVICE", "VOLUME_ACCESSIBILITY_CONSTRAINTS"];
    let services = services.map(|kind| json!({"service": {"type": kind}}));
    let online = json!({"volumeExpansion": {"type": "ONLINE"}});
    let all: Vec<Value> = services.into_iter().chain([online]).collect();
    json!({"capabilities": all})
}
