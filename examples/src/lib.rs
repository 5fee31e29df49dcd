//! Examples of [hookpoint], each short and each about something that a user wants to do. The library
//! itself is empty: the examples are targets of the manifest, and `examples/README.md` gives the order in
//! which they are best read.
//!
//! All of them take a device, from a flag or from `HOOKPOINT_DEVICE`, by the name that
//! [`hookpoint::device`](hookpoint::device()) understands:
//!
//! ```
//! assert!(hookpoint::device("cpu")?.is_cpu());
//! let error = hookpoint::device("abacus").unwrap_err();
//! assert!(error.to_string().starts_with("there is no device `abacus`"));
//! # Ok::<(), hookpoint::Error>(())
//! ```
