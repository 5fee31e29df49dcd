//! What kind of hook it is: when it is called, and with what.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, ErrorKind, Result};

/// When a hook is called.
///
/// ```
/// use hookpoint::manage::HookCategory;
///
/// let category: HookCategory = "forward_pre_hook".parse()?;
/// assert_eq!(category, HookCategory::ForwardPre);
/// assert_eq!(category.to_string(), "forward_pre_hook");
/// assert!("forwards_hook".parse::<HookCategory>().is_err());
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HookCategory {
    /// With a value that the forward pass has computed.
    Forward,
    /// With the inputs of a module, before it runs.
    ForwardPre,
    /// With gradients.
    Backward,
}

impl HookCategory {
    /// All categories.
    pub const ALL: [Self; 3] = [Self::Forward, Self::ForwardPre, Self::Backward];

    fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward_hook",
            Self::ForwardPre => "forward_pre_hook",
            Self::Backward => "backward_hook",
        }
    }
}

impl fmt::Display for HookCategory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for HookCategory {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|category| category.name() == text);
        found.ok_or_else(|| {
            let known = Self::ALL.iter().map(|category| category.name().to_string()).collect();
            ErrorKind::UnknownCategory { name: text.to_string(), known }.into()
        })
    }
}
