//! Devices by name, for flags and environment variables.

use candle_core::Device;

use crate::error::{Error, Result};

/// The environment variable that tests and examples take their device from.
pub const DEVICE_VARIABLE: &str = "HOOKPOINT_DEVICE";

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
    let unknown = || Error::msg(format!("there is no device `{name}`\n  write `cpu`, `cuda:0` or `metal`"));
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
        Error::msg(match built {
            true => format!("the device `{name}` cannot be used: {error}\n  choose another, or `cpu`"),
            false => format!(
                "this program was built without {kind}, so the device `{name}` is not there\n  \
                 build it with `--features {kind}`, or use `cpu`"
            ),
        })
    })
}

/// The device that the environment variable `HOOKPOINT_DEVICE` names, or the CPU.
pub fn device_from_env() -> Result<Device> {
    match std::env::var(DEVICE_VARIABLE) {
        Ok(name) => device(&name),
        Err(std::env::VarError::NotPresent) => Ok(Device::Cpu),
        Err(error) => Err(Error::msg(format!("{DEVICE_VARIABLE}: {error}"))),
    }
}
