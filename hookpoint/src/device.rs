//! Devices by name, for flags and environment variables.

use candle_core::Device;

use crate::error::{Error, ErrorKind, Result};

/// The environment variable that tests and examples take their device from.
const DEVICE_VARIABLE: &str = "HOOKPOINT_DEVICE";

/// The device of this name: `cpu`, `cuda`, `cuda:1`, `metal` or `metal:1`.
///
/// A device that is not there, or that this build cannot use, is an error that says what to do.
///
/// ```
/// assert!(hookpoint::device("cpu")?.is_cpu());
/// assert!(hookpoint::device("tpu").is_err());
/// # Ok::<(), hookpoint::Error>(())
/// ```
pub fn device(name: &str) -> Result<Device> {
    let unknown = || {
        let known = ["cpu", "cuda:0", "metal"].map(str::to_string).to_vec();
        Error::from(ErrorKind::UnknownName { what: "device".to_string(), name: name.to_string(), known })
    };
    let (kind, ordinal) = match name.split_once(':') {
        Some((kind, ordinal)) => (kind, ordinal.parse().map_err(|_| unknown())?),
        None => (name, 0),
    };
    let made = match kind {
        "cpu" => return Ok(Device::Cpu),
        "cuda" => Device::new_cuda(ordinal),
        "metal" => Device::new_metal(ordinal),
        _ => return Err(unknown()),
    };
    made.map_err(|error| {
        let built = match kind {
            "cuda" => candle_core::utils::cuda_is_available(),
            _ => candle_core::utils::metal_is_available(),
        };
        let (reason, remedy) = match built {
            true => (error.to_string(), "choose another, or `cpu`".to_string()),
            false => (
                format!("this program was built without {kind}"),
                format!("build it with `--features {kind}`, or use `cpu`"),
            ),
        };
        ErrorKind::DeviceUnavailable { device: name.to_string(), reason, remedy }.into()
    })
}

/// The device that the environment variable `HOOKPOINT_DEVICE` names, or the CPU.
pub fn device_from_env() -> Result<Device> {
    match std::env::var(DEVICE_VARIABLE) {
        Ok(name) => device(&name),
        Err(std::env::VarError::NotPresent) => Ok(Device::Cpu),
        Err(std::env::VarError::NotUnicode(text)) => Err(ErrorKind::InvalidArgument {
            argument: format!("the variable {DEVICE_VARIABLE}"),
            got: format!("{text:?}, which is not Unicode"),
            remedy: "set it to `cpu`, `cuda:0` or `metal`".to_string(),
        }
        .into()),
    }
}
